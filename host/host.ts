import { once } from 'node:events'
import { mkdir } from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { join } from 'node:path'
import { BASE, createApi } from './api/api.ts'
import { backupRoutes } from './api/backup-routes.ts'
import { moveRoutes } from './api/move-routes.ts'
import { observationRoutes } from './api/observation-routes.ts'
import { lifecycleRoutes } from './api/routes.ts'
import { settingRoutes } from './api/setting-routes.ts'
import { createBackups } from './backups/backups.ts'
import { removeOldDataHourly } from './backups/restore.ts'
import { type S3Settings, s3Store } from './backups/store.ts'
import { ensureCertificate } from './gateway/certificate.ts'
import { startGateway } from './gateway/gateway.ts'
import { InstancePool } from './instances/instances.ts'
import { Locks } from './instances/locks.ts'
import { hostKey } from './key.ts'
import type { HostLog } from './log.ts'
import { usableMemoryBytes } from './memory.ts'
import { createMoves } from './moves/moves.ts'
import { extensiblePrograms } from './programs.ts'
import { Replicas } from './replicas/replicas.ts'
import { replicaRoutes, withReplicaUpdates } from './replicas/routes.ts'
import { claimFolder, runFolder } from './run-folder.ts'
import { openLimits } from './settings/cgroup.ts'
import { createSqlHandlers } from './sql/sql.ts'
import { upgradeRoutes } from './upgrades/routes.ts'

export interface HostOptions {
  /** The folder of the instances. */
  folder: string
  /** The secret with which the control plane authenticates. */
  key: string
  /** The address to listen on; 127.0.0.1 by default. */
  address?: string
  /** The port of the control API and of SQL over HTTP; 0, the default, takes any free port. */
  port?: number
  /** The port of the Postgres protocol; 0, the default, takes any free port. */
  gatewayPort?: number
  /** The address that the port of the Postgres protocol listens on; `address` by default. */
  gatewayAddress?: string
  /** Clients may name an instance by the TLS server name `db.<ref>.<domain>`. */
  domain?: string
  /** The networks of TLS proxies in front of the HTTP port, whose `X-Forwarded-For` and `X-Forwarded-Proto` count. */
  proxies?: readonly string[]
  /** A region code of the API; `us-east-1` by default. */
  region?: string
  /** False loses data if the machine crashes, and is faster: for tests. */
  isDurable?: boolean
  /** The bucket for backups and WAL; undefined disables backups. */
  archive?: S3Settings & { key: string }
  /** Time without a session after which an instance sleeps, if its record names no other; null for never. */
  sleepAfterSeconds?: number | null
  /** Memory of the machine, which limits the offered sizes; by default what this process may use. */
  memoryBytes?: number
  log?: HostLog
}

export interface Host {
  /** Base URL of the control API and of SQL over HTTP. */
  url: string
  port: number
  gatewayPort: number
  pool: InstancePool
  /** The folder of the sockets. */
  run: string
  /** Serves a client that connected to a port other than the gateway's. */
  accept(client: Socket): void
  /** The superuser's connection string for the unix socket of a running instance. */
  adminUrl(name: string): string
  /** Stops all servers. */
  stop(): Promise<void>
}

/** Runs the Postgres instances of this machine, their gateway, SQL over HTTP and the control API. */
export async function startHost(options: HostOptions): Promise<Host> {
  const { folder, key: secret, address = '127.0.0.1', region = 'us-east-1', isDurable = true, log = () => {} } = options
  await mkdir(folder, { recursive: true, mode: 0o711 })
  const run = await runFolder(folder)
  const started: (() => unknown)[] = [await claimFolder(folder, run)]
  const pool = new InstancePool({
    folders: { root: folder, run },
    programs: await extensiblePrograms(folder),
    isDurable,
    isArchiving: options.archive !== undefined,
    sleepAfterSeconds: options.sleepAfterSeconds ?? null,
    memoryBytes: options.memoryBytes ?? usableMemoryBytes(),
    limits: await openLimits(),
    log,
  })
  const replicas = new Replicas({ pool, log })
  started.push(() => pool.close())
  started.push(() => replicas.close())
  const stop = async () => {
    for (const end of started.splice(0).reverse()) await end()
  }
  try {
    await pool.open()
    const key = hostKey(secret)
    const gateway = await startGateway({
      port: options.gatewayPort ?? 0,
      host: options.gatewayAddress ?? address,
      instances: pool,
      tls: await ensureCertificate(join(folder, 'tls')),
      key,
      domain: options.domain,
      endIdleSessions: (name) => sql.endIdle(name),
      log,
    })
    started.push(() => gateway.stop())
    const sql = createSqlHandlers({
      instances: pool,
      gateway,
      authenticate: gateway.authenticate,
      key,
      domain: options.domain,
      proxies: options.proxies,
    })
    const locks = new Locks()
    started.push(removeOldDataHourly({ instances: pool, locks, log }))
    const endSessions = (name: string) => {
      gateway.endSessions(name)
      sql.endSessions(name)
    }
    const endClientHttpSessions = (name: string) => sql.endSessions(name, 'clients')
    replicas.open()
    const backups = options.archive && openBackups(options.archive, pool, log)
    if (backups) started.push(() => backups.stop())
    const moves = backups && createMoves({ pool, backups })
    if (moves) started.push(() => moves.close())
    const features = backups ? ['backups'] : []
    const instanceRoutes = [
      ...lifecycleRoutes({
        pool,
        locks,
        region,
        features,
        endSessions,
        removeArchive: (name) => backups?.removeArchive(name),
        replicas,
      }),
      ...upgradeRoutes({ pool, endSessions, archive: backups?.archive }),
      ...(backups ? backupRoutes({ pool, backups, endSessions }) : []),
      ...(moves ? moveRoutes({ pool, moves, endSessions }) : []),
      ...settingRoutes({ pool, gateway, endClientHttpSessions }),
      ...observationRoutes({ pool }),
    ]
    const routes = [...withReplicaUpdates(instanceRoutes, replicas), ...replicaRoutes({ replicas, pool, gateway })]
    const api = createApi({ key, locks, routes, log })
    const server = createServer((req, res) => (req.url?.startsWith(BASE) ? api(req, res) : sql.sql(req, res)))
    server.on('upgrade', sql.upgrade)
    const adminUrl = (name: string) =>
      `postgresql://supabase_admin@localhost/postgres?host=${encodeURIComponent(join(run, name))}`
    await once(server.listen(options.port ?? 0, address), 'listening')
    // The server closes only after the WebSockets, which are no longer its connections.
    started.push(() => Promise.all([close(server), sql.stop()]))
    const { port } = server.address() as AddressInfo
    const { port: gatewayPort, accept } = gateway
    return { url: `http://${address}:${port}`, port, gatewayPort, pool, run, accept, adminUrl, stop }
  } catch (error) {
    await stop()
    throw error
  }
}

const openBackups = (
  { key, ...s3 }: S3Settings & { key: string },
  instances: InstancePool,
  log: NonNullable<HostOptions['log']>,
) => createBackups({ store: s3Store(s3), key: Buffer.from(key), instances, log })

async function close(server: Server): Promise<void> {
  const closed = once(server, 'close')
  server.close()
  server.closeAllConnections()
  await closed
}
