import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { errorCode, StartError } from './start-error.ts'

/** The setting that moves each service to another port. */
export const PORT_SETTINGS = {
  api: 'PORT',
  postgres: 'POSTGRES_PORT',
  proxy: 'PROXY_PORT',
  s3: 'S3_PORT',
} as const

/** A port of 127.0.0.1 that nobody listens on: the wanted one, or any for 0. */
export async function freePort(wanted: number, service: keyof typeof PORT_SETTINGS): Promise<number> {
  const server = createServer()
  server.listen(wanted, '127.0.0.1')
  try {
    await once(server, 'listening')
  } catch (error) {
    throw portError(error, wanted, service)
  }
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return port
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
