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

/** The address of everything that other machines must not reach. */
export const LOOPBACK = '127.0.0.1'

/** The only port at which the `supabase` CLI looks for the database of a linked project. */
export const CLI_PORT = 5432

/** First port of the range: it is below the ports of outgoing connections, one of which could take the port before it is used. */
const FIRST_PORT = 15_000
const PORT_COUNT = 16_000
const ATTEMPTS_MAX = 50

/** Returns a free port of the address: the wanted one, or any for 0. Throws if the wanted port cannot be used. */
export async function freePort(
  wanted: number,
  service: keyof typeof PORT_SETTINGS,
  address: string = LOOPBACK,
): Promise<number> {
  for (let attempt = 1; ; attempt++) {
    const port = wanted || FIRST_PORT + Math.floor(Math.random() * PORT_COUNT)
    try {
      await tryPort(port, address)
      return port
    } catch (error) {
      if (wanted || attempt === ATTEMPTS_MAX || errorCode(error) !== 'EADDRINUSE') throw portError(error, port, service)
    }
  }
}

async function tryPort(port: number, address: string): Promise<void> {
  const server = createServer().listen(port, address)
  await once(server, 'listening')
  server.close()
  await once(server, 'close')
}

/** Refuses two services with the same port, before one of them starts. */
export function requireDistinctPorts(ports: Record<keyof typeof PORT_SETTINGS, number>): void {
  const owners = new Map<number, string>()
  for (const service of Object.keys(PORT_SETTINGS) as (keyof typeof PORT_SETTINGS)[]) {
    const [port, setting] = [ports[service], PORT_SETTINGS[service]]
    const owner = owners.get(port)
    if (owner) throw new StartError(`${owner} and ${setting} are both ${port}: give each a port of its own.`)
    owners.set(port, setting)
  }
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
