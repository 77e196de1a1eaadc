import pg from 'pg'

/** Runs a query again and again in several sessions of a plain client: `node plain-reader.ts <socket folder> <query> <sessions>`. */
const [host, query = '', sessions] = process.argv.slice(2)

async function read(): Promise<never> {
  const client = new pg.Client({ host, user: 'postgres', database: 'postgres' })
  await client.connect()
  for (;;) await client.query(query)
}

await Promise.all(Array.from({ length: Number(sessions) }, read))
