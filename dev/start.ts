import { rm } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { isHostRunning } from '../host/run-folder.ts'
import { buildWorker } from './bundle.ts'
import { readFlags } from './flags.ts'
import { describeFailure, openLifetime } from './lifetime.ts'
import { freePort, type PORT_SETTINGS } from './ports.ts'
import { readyText, stepLine } from './report.ts'
import { readSettings, warningsOf } from './settings.ts'
import { StartError } from './start-error.ts'

const lifetime = openLifetime()
lifetime.onSignal(() => {
  // A second Ctrl-C does not wait: Postgres recovers from its log at the next start.
  if (lifetime.isEnding()) process.exit(1)
  console.log('\nStopping…')
  lifetime.end().then(() => process.exit(0), fail)
})
start().catch(endBecause)

async function endBecause(error: unknown) {
  if (lifetime.isEnding()) return
  await lifetime.end().catch(() => {})
  fail(error)
}

function fail(error: unknown) {
  console.error(describeFailure(error))
  process.exit(1)
}

async function start() {
  const flags = readFlags('npm start', ['--reset'])
  const settings = readSettings(process.env)
  const { folder, ports, baseUrl, isForCli, vars } = settings
  const startedAt = performance.now()
  if (await isHostRunning(join(folder, 'host')))
    throw new StartError(`${folder} is in use: stop the other start first.`)
  if (flags.has('--reset')) await deleteData(folder)
  for (const service of Object.keys(ports) as (keyof typeof PORT_SETTINGS)[]) await freePort(ports[service], service)

  // Slow to load: a start that is refused tells so without them.
  const [{ startServices }, { startWorker }, { CREDENTIALS, saveCredentials }, { clientsText, saveClients }] =
    await Promise.all([
      import('./services.ts'),
      import('./worker.ts'),
      import('./credentials.ts'),
      import('./clients.ts'),
    ])
  console.log(['Starting Pilothouse', ...warningsOf(settings)].join('\n'))
  const bundle = join(folder, 'bundle')
  const [services] = await Promise.all([
    lifetime.add(startServices({ folder, ports, baseUrl, isForCli, durable: true, onStep: showStep })),
    timed('build', () => buildWorker({ folder: bundle })),
  ])
  const { controlUrl } = services
  const { credentials, isNew } = await timed('owner', () =>
    saveCredentials({
      ...{ folder, controlUrl, baseUrl, onLine: console.log },
      ...{ databasePort: ports.postgres, hostUrl: services.host.url },
    }),
  )
  const bindings = { ...services.vars, ...vars, ...services.secrets, SOLE_WORKER: 'on' }
  await saveClients(folder, credentials, bindings)
  await timed('worker', () =>
    lifetime.add(
      startWorker({
        bundle,
        port: ports.api,
        bindings,
        folder: join(folder, 'worker'),
      }),
    ),
  )
  showStep('all', performance.now() - startedAt)
  console.log(readyText(credentials, { file: resolve(folder, CREDENTIALS), isNew }))
  console.log(clientsText(folder, credentials))
}

function showStep(name: string, ms: number) {
  console.log(stepLine(name, ms))
}

async function timed<T>(name: string, work: () => Promise<T>): Promise<T> {
  const startedAt = performance.now()
  const result = await work()
  showStep(name, performance.now() - startedAt)
  return result
}

const DATA = [
  'host',
  's3',
  'worker',
  'bundle',
  'secrets.json',
  'credentials.json',
  'credentials.json.new',
  'supabase-profile.yaml',
  'mcp.json',
]

// By name, so that a folder which holds other things too loses nothing but ours.
async function deleteData(folder: string) {
  for (const name of DATA) await rm(join(folder, name), { recursive: true, force: true })
}
