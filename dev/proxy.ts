import { readFlags } from './flags.ts'
import { describeFailure, openLifetime } from './lifetime.ts'
import { startNeonProxy } from './neon-proxy.ts'
import { StartError } from './start-error.ts'

/** The Neon-compatible proxy by itself, for a Postgres of yours: put TLS in front of it before it leaves the machine. */
async function main(): Promise<void> {
  readFlags('npm run proxy', [])
  const { POSTGRES_ADDRESS = '', PROXY_HOST, PROXY_PORT = '54330', POOLED_ROLES = '' } = process.env
  const [, host, port] = /^(.+):(\d{1,5})$/.exec(POSTGRES_ADDRESS) ?? []
  if (!host || !port)
    throw new StartError('Set POSTGRES_ADDRESS to <host>:<port> of the Postgres to stand in front of.')
  const lifetime = openLifetime()
  const proxy = await lifetime.add(
    startNeonProxy({
      postgres: { host, port: Number(port) },
      port: Number(PROXY_PORT),
      ...(PROXY_HOST && { host: PROXY_HOST }),
      pooledRoles: POOLED_ROLES.split(',').filter((role) => role !== ''),
    }),
  )
  lifetime.onSignal(() => lifetime.end().then(() => process.exit(0)))
  console.log(`${proxy.url} stands in front of ${POSTGRES_ADDRESS}`)
}

main().catch((error) => {
  console.error(describeFailure(error))
  process.exitCode = 1
})
