import { join, resolve } from 'node:path'
import { makePrivate } from '../host/instances/files.ts'
import { FolderInUse, isHostRunning } from '../host/run-folder.ts'
import manifest from '../package.json' with { type: 'json' }
import { buildWorker } from './bundle.ts'
import { confirm } from './confirm.ts'
import { deleteData, listData, openDataFolder, requireBucket, requireDiskSpace } from './data-folder.ts'
import { readFlags } from './flags.ts'
import { describeFailure, openLifetime } from './lifetime.ts'
import { type LogOutput, openLogOutput } from './log-output.ts'
import { freePort, type PORT_SETTINGS, requireDistinctPorts } from './ports.ts'
import { readSettings, type Settings, warningsOf } from './settings.ts'
import { errorCode, StartError } from './start-error.ts'
import { readyText, stepLine } from './start-output.ts'

const lifetime = openLifetime()
/** Errors of what Ctrl-C interrupts: it ends all processes of the group before they are stopped. */
const INTERRUPTED = /"event":"(programs_ended|programs_not_started|process_not_started|request_failed)"/
main().catch(endAfterFailure)

async function main() {
  const flags = readFlags('npm start', ['--reset', '--yes', '--empty-bucket'])
  if (flags.has('--yes') && !flags.has('--reset')) throw new StartError('--yes can only be used with --reset.')
  const settings = readSettings(process.env)
  requireDistinctPorts(settings.ports)
  const log = openLogOutput(settings.logFormat)
  lifetime.onSignal((signal) => {
    // A second Ctrl-C exits at once: Postgres recovers from its WAL at the next start.
    if (lifetime.isEnding()) process.exit(1)
    if (settings.logFormat === 'text') console.log('\nStopping…')
    else log.event('info', 'stopping', { signal })
    lifetime.end().then(() => {
      log.event('info', 'stopped')
      log.flush()
      process.exit(0)
    }, fail)
  })
  await start(settings, log, flags)
}

async function endAfterFailure(error: unknown) {
  if (lifetime.isEnding()) return
  await lifetime.end().catch(() => {})
  fail(error)
}

function fail(error: unknown) {
  console.error(describeFailure(error))
  process.exit(1)
}

async function start(settings: Settings, log: LogOutput, flags: ReadonlySet<string>) {
  const { folder, ports, baseUrl, isForCli, postgresAddress, vars } = settings
  // With JSON logs, programs read standard output, so only the log goes there.
  const print = settings.logFormat === 'text' ? console.log : console.error
  const onStep = (name: string, ms: number) => print(stepLine(name, ms))
  const startedAt = performance.now()
  await openDataFolder(folder)
  if (await isHostRunning(join(folder, 'host')).catch(refuseFolder))
    throw new StartError(`${folder} is in use: stop the other start first.`)
  if (flags.has('--reset')) await reset(folder, flags.has('--yes'))
  await requireDiskSpace(folder)
  if (!flags.has('--empty-bucket')) await requireBucket(folder)
  for (const service of Object.keys(ports) as (keyof typeof PORT_SETTINGS)[]) await freePort(ports[service], service)
  await freePort(ports.postgres, 'postgres', postgresAddress).catch(refuseAddress)

  // Loaded only if there is something to check, because it is slow to load.
  if (Object.keys(vars).length > 0) {
    const { checkSettings, PLACEHOLDERS } = await import('./worker-settings.ts')
    checkSettings({ ...PLACEHOLDERS, ...vars })
  }
  print(['Starting Pilothouse', ...warningsOf(settings)].join('\n'))
  const bundle = join(folder, 'bundle')
  const onLine = (line: string) => {
    if (!lifetime.isEnding() || !INTERRUPTED.test(line)) log.onLine(line)
  }
  // Loaded late because they are slow to load: a refused start does not need them, and the rest loads while the services start.
  const startServices = async () => {
    const services = await import('./services.ts')
    const clients = { isForCli, postgresAddress, domain: vars.DATABASE_DOMAIN }
    return services.startServices({ folder, ports, baseUrl, ...clients, durable: true, onStep, onLine })
  }
  const [services, { CREDENTIALS, saveCredentials }, { clientsText, saveClients }, { startWorker }] = await Promise.all(
    [
      lifetime.add(startServices()),
      import('./credentials.ts'),
      import('./clients.ts'),
      import('./worker.ts'),
      timed(onStep, 'build', () => buildWorker({ folder: bundle })),
    ],
  )
  const { controlUrl } = services
  const { credentials, isNew } = await timed(onStep, 'owner', () =>
    saveCredentials({
      ...{ folder, controlUrl, baseUrl, onLine: print },
      ...{ databasePort: ports.postgres, hostUrl: services.host.url, s3Url: services.vars.S3_ENDPOINT ?? '' },
    }),
  )
  const bindings = { ...services.vars, ...vars, ...services.secrets, SOLE_WORKER: 'on' }
  await saveClients(folder, credentials, bindings)
  const state = join(folder, 'worker')
  await makePrivate(state)
  await timed(onStep, 'worker', () =>
    lifetime.add(startWorker({ bundle, port: ports.api, bindings, folder: state, onLine })),
  )
  const ms = performance.now() - startedAt
  onStep('all', ms)
  log.event('info', 'started', { version: manifest.version, base_url: baseUrl, folder, ms: Math.round(ms) })
  print(readyText(credentials, { file: resolve(folder, CREDENTIALS), isNew }))
  print(clientsText(folder, credentials))
}

function refuseAddress(error: unknown): never {
  if (errorCode(error) !== 'EADDRNOTAVAIL') throw error
  throw new StartError(`POSTGRES_ADDRESS=${process.env.POSTGRES_ADDRESS} is not an address of this machine.`)
}

function refuseFolder(error: unknown): never {
  throw error instanceof FolderInUse ? new StartError(`${error.message}: start as that user.`) : error
}

async function reset(folder: string, isConfirmed: boolean) {
  if ((await listData(folder)).length === 0) return
  await confirm({ what: `deletes all data in ${folder}`, command: 'npm start -- --reset', isConfirmed })
  await deleteData(folder)
}

async function timed<T>(onStep: (name: string, ms: number) => void, name: string, work: () => Promise<T>): Promise<T> {
  const startedAt = performance.now()
  const result = await work()
  onStep(name, performance.now() - startedAt)
  return result
}
