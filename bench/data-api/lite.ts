import { fork } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

interface Options {
  /** The folder in which `@supabase/lite`, `postgres` and `@hono/node-server` are installed. */
  folder: string
  /** The folder with the socket of Postgres. */
  socket: string
  jwtSecret: string
  /** Limit for the rows of a reply: 1,000 unless it is set. */
  maxRows: number
}

/** Starts `@supabase/lite` in a process of its own, on the same Postgres. */
export async function startLite(options: Options): Promise<{ port: number; stop(): Promise<void> }> {
  const child = fork(fileURLToPath(import.meta.url), [JSON.stringify(options)])
  const exited = once(child, 'exit')
  const failed = exited.then(() => Promise.reject(new Error('@supabase/lite did not start')))
  const [port] = (await Promise.race([once(child, 'message'), failed])) as [number]
  failed.catch(() => {})
  // Its first request changes the schema of the database.
  await fetch(`http://127.0.0.1:${port}/rest/v1/books?limit=1`)
  return {
    port,
    async stop() {
      child.kill()
      await exited
    },
  }
}

async function serve({ folder, socket, jwtSecret, maxRows }: Options): Promise<void> {
  // The packages are not dependencies of this project: they are imported by their paths, and without types.
  const importFile = (path: string) => import(pathToFileURL(join(folder, 'node_modules', path)).href)
  const { App } = await importFile('@supabase/lite/dist/index.js')
  const { createPostgresConnection } = await importFile('@supabase/lite/dist/db/postgres/PostgresConnection.js')
  const { serve: listen } = await importFile('@hono/node-server/dist/index.mjs')
  const connection = createPostgresConnection({
    url: 'postgres://localhost/postgres',
    postgresOptions: {
      ...{ host: socket, user: 'supabase_admin', database: 'postgres', max: 20 },
      connection: { search_path: 'public, extensions' },
    },
  })
  const app = new App({ connection, api: { max_rows: maxRows }, auth: { jwt_secret: jwtSecret } })
  const fetch = async (request: Request): Promise<Response> => {
    const response: Response = await app.fetch(request)
    // The client of the benchmark reads replies by their length.
    if (!response.body) response.headers.set('content-length', '0')
    return response
  }
  listen({ fetch, port: 0, hostname: '127.0.0.1' }, ({ port }: { port: number }) => process.send?.(port))
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await serve(JSON.parse(process.argv[2] ?? '{}'))
