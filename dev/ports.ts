import { once } from 'node:events'
import { createServer } from 'node:net'
import { errorCode, StartError } from './start-error.ts'

/** The setting that moves each service to another port. */
export const PORT_SETTINGS = {
  api: 'PORT',
  postgres: 'POSTGRES_PORT',
  proxy: 'PROXY_PORT',
  s3: 'S3_PORT',
} as const

/** Below those that systems give to connections that go out, one of which could have taken it by the time that it is used. */
const FREE_FROM = 15_000
const FREE_COUNT = 16_000
const DRAWS = 50

/** A port of 127.0.0.1 that nobody listens on: the wanted one, or any for 0. */
export async function freePort(wanted: number, service: keyof typeof PORT_SETTINGS): Promise<number> {
  for (let draw = 1; ; draw++) {
    const port = wanted || FREE_FROM + Math.floor(Math.random() * FREE_COUNT)
    try {
      await tryPort(port)
      return port
    } catch (error) {
      if (wanted || draw === DRAWS || errorCode(error) !== 'EADDRINUSE') throw portError(error, port, service)
    }
  }
}

async function tryPort(port: number): Promise<void> {
  const server = createServer().listen(port, '127.0.0.1')
  await once(server, 'listening')
  server.close()
  await once(server, 'close')
}

export function portError(error: unknown, port: number, service: keyof typeof PORT_SETTINGS): unknown {
  const setting = PORT_SETTINGS[service]
  const code = errorCode(error)
  if (code === 'EADDRINUSE') {
    return new StartError(
      `Port ${port} (${service}) is in use: stop the program that listens there, or choose another with ${setting}=<port>.`,
    )
  }
  if (code === 'EACCES') {
    return new StartError(`Port ${port} (${service}) needs more rights: choose one above 1023 with ${setting}=<port>.`)
  }
  return error
}

export async function freePorts(count: number): Promise<number[]> {
  const ports = new Set<number>()
  while (ports.size < count) ports.add(await freePort(0, 'api'))
  return [...ports]
}
