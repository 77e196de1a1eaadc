import type { ChildProcess } from 'node:child_process'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { buildWorker } from '../dev/bundle.ts'
import { spawnedBy } from '../dev/child-process.ts'
import { describeFailure, openLifetime } from '../dev/lifetime.ts'
import { freePort } from '../dev/ports.ts'
import { startServices } from '../dev/services.ts'
import { startWorker } from '../dev/worker.ts'

export interface Ready {
  port: number
  controlUrl: string
  /** Port at which clients reach the databases of projects. */
  gatewayPort: number
  hostUrl: string
  hostKey: string
  /** The folder with the instances' files. */
  instances: string
  /** The folder with the instances' sockets. */
  sockets: string
  encryptionKey: string
  /** Ids of the processes that run the API and the bucket. */
  pids: { api: number | undefined; bucket: number | undefined }
  s3: { endpoint: string; bucket: string; accessKeyId: string; secretAccessKey: string }
}

/** Allows receivers on this machine, with a timeout that is short enough for a benchmark. */
const WEBHOOKS = { WEBHOOK_LOOPBACK: 'on', WEBHOOK_TIMEOUT_SECONDS: '2' }

const lifetime = openLifetime()
const end = () =>
  lifetime.end().then(
    () => process.exit(process.exitCode),
    () => process.exit(1),
  )
lifetime.onSignal(end)
process.once('disconnect', end)

async function serve(folder: string): Promise<Ready> {
  const bundle = join(folder, 'bundle')
  const port = await freePort(0, 'api')
  const [{ result: services, children: ofServices }] = await Promise.all([
    spawnedBy(() => lifetime.add(startServices({ folder, durable: true, baseUrl: `http://127.0.0.1:${port}` }))),
    buildWorker({ folder: bundle, entry: fileURLToPath(new URL('worker.ts', import.meta.url)) }),
  ])
  const bindings = { ...services.vars, ...services.secrets, ...WEBHOOKS }
  const { children: ofWorker } = await spawnedBy(() =>
    lifetime.add(startWorker({ bundle, port, bindings, folder: join(folder, 'worker') })),
  )
  // The builder and the programs start later, and are not in these lists.
  const pids = { api: lastWorkerd(ofWorker), bucket: lastWorkerd(ofServices) }
  const { controlUrl, host, secrets, vars } = services
  const s3 = {
    endpoint: vars.S3_ENDPOINT ?? '',
    bucket: vars.S3_BUCKET ?? '',
    accessKeyId: secrets.S3_ACCESS_KEY_ID ?? '',
    secretAccessKey: secrets.S3_SECRET_ACCESS_KEY ?? '',
  }
  const { gatewayPort, run: sockets } = host
  const instances = join(folder, 'host', 'instances')
  const { HOST_KEY: hostKey = '' } = secrets
  return {
    port,
    controlUrl,
    gatewayPort,
    hostUrl: host.url,
    hostKey,
    instances,
    sockets,
    encryptionKey: secrets.ENCRYPTION_KEY ?? '',
    pids,
    s3,
  }
}

const lastWorkerd = (children: readonly ChildProcess[]): number | undefined =>
  children.findLast(({ spawnfile }) => spawnfile.endsWith('workerd'))?.pid

serve(process.argv[2] ?? '').then(
  (ready) => process.send?.(ready),
  (error) => {
    console.error(describeFailure(error))
    process.exitCode = 1
    void end()
  },
)
