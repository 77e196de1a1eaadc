import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { makePrivate } from '../host/instances/files.ts'
import { saveClients } from './clients.ts'
import { CREDENTIALS, saveCredentials } from './credentials.ts'
import { tickEveryMinute } from './cron.ts'
import { readFlags } from './flags.ts'
import { describeFailure, openLifetime } from './lifetime.ts'
import { requireDistinctPorts } from './ports.ts'
import { readSettings, warningsOf } from './settings.ts'
import { stepLine } from './start-output.ts'

/** `npm run dev`: the services of `npm start` under `wrangler dev`, which is slower and reloads when src changes. */
const lifetime = openLifetime()

async function dev(): Promise<void> {
  readFlags('npm run dev', [])
  const settings = readSettings(process.env)
  requireDistinctPorts(settings.ports)
  const { folder, ports, baseUrl, isForCli, postgresAddress, vars } = settings
  let wrangler: ChildProcess | undefined
  let isStopping = false
  // Ctrl-C and the end of a terminal reach wrangler too; the services stop once it is gone.
  lifetime.onSignal((signal) => {
    // A second Ctrl-C exits at once: Postgres recovers from its WAL at the next start.
    if (isStopping) process.exit(1)
    isStopping = true
    if (signal === 'SIGTERM') wrangler?.kill()
  })
  // Loaded late because it is slow to load: a refused start does not need it.
  const { startServices } = await import('./services.ts')
  for (const warning of warningsOf(settings)) console.log(warning)
  const onStep = (name: string, ms: number) => console.log(stepLine(name, ms))
  const clients = { isForCli, postgresAddress, domain: vars.DATABASE_DOMAIN }
  const services = await lifetime.add(startServices({ folder, ports, baseUrl, ...clients, durable: true, onStep }))
  const bindings = { ...services.vars, ...vars, ...services.secrets }
  const { credentials } = await saveCredentials({
    ...{ folder, controlUrl: services.controlUrl, baseUrl, onLine: console.log },
    ...{ databasePort: ports.postgres, hostUrl: services.host.url, s3Url: services.vars.S3_ENDPOINT ?? '' },
  })
  await saveClients(folder, credentials, bindings)
  console.log(`The owner's access token is in ${join(folder, CREDENTIALS)}.`)
  const envFile = join(folder, 'dev.vars')
  const lines = Object.entries(bindings).map(([name, value]) => `${name}='${value}'`)
  await writeFile(envFile, lines.join('\n'), { mode: 0o600 })
  const state = join(folder, 'dev')
  await makePrivate(state)
  const configs = ['wrangler.toml', 'src/builder/wrangler.toml'].flatMap((path) => ['--config', path])
  const args = ['dev', ...configs, '--port', String(ports.api), '--env-file', envFile, '--persist-to', state]
  if (isStopping) return
  wrangler = spawn('wrangler', [...args, '--test-scheduled'], { stdio: 'inherit' })
  const cron = startCron(wrangler, () => fetch(`http://127.0.0.1:${ports.api}/cdn-cgi/handler/scheduled`))
  const [code]: (number | null)[] = await once(wrangler, 'exit')
  // wrangler has no exit code if a signal ended it, and one above 0 after Ctrl-C.
  process.exitCode = isStopping ? 0 : (code ?? 1)
  const { stop } = await cron
  stop()
}

/** Starts the cron when wrangler is ready, which only a successful tick shows. */
async function startCron(wrangler: ChildProcess, tick: () => Promise<unknown>): Promise<{ stop(): void }> {
  while (wrangler.exitCode === null && wrangler.signalCode === null) {
    const isUp = await tick().then(
      () => true,
      () => false,
    )
    if (isUp) return tickEveryMinute(tick, console.error)
    await delay(250)
  }
  return { stop: () => {} }
}

dev()
  .catch((error) => {
    console.error(describeFailure(error))
    process.exitCode = 1
  })
  .finally(() => lifetime.end())
