import pg from 'pg'

/** Reads the results of a query again and again, by several sessions of a plain client: `node plain-reader.ts <socket folder> <query> <sessions>`. */
const [host, query = '', sessions] = process.argv.slice(2)

async function read(): Promise<never> {
  const client = new pg.Client({ host, user: 'postgres', database: 'postgres' })
  await client.connect()
  for (;;) await client.query(query)
}

await Promise.all(Array.from({ length: Number(sessions) }, read))
