import { and, eq, gte, isNull, sql } from 'drizzle-orm'
import type { HostApi } from '../../src/engine/host/client.ts'
import { LOCAL } from '../../src/engine/host/directory.ts'
import { type Gauges, readGauges } from '../../src/management/installation/gauges.ts'
import { HEARTBEAT_SECONDS_MAX } from '../../src/management/installation/health.ts'
import { heartbeats, projects, projectTasks, workerTasks } from '../../src/model/tables/index.ts'
import { DATABASE_CLOCK } from '../../src/platform/db/database-clock.ts'
import type { ControlDb } from '../seed.ts'
import { errorMessage } from '../start-error.ts'
import { targetEncryptionKey } from '../target.ts'
import { type Command, DAY_MS, type Report } from './command.ts'
import { findUnopened } from './encryption.ts'
import { hostApis, unknownHere } from './host-apis.ts'

/** Limit for due work, which the sweeper starts within 15 s. */
const OVERDUE_SECONDS_MAX = 60

export const statusCommands: Record<string, Command> = {
  status: {
    summary: 'Show what the installation holds, and its problems; the exit code is 1 if there are any.',
    args: [],
    run: showStatus,
  },
}

async function showStatus(db: ControlDb): Promise<Report> {
  const gauges = await readGauges({ db, databaseNow: DATABASE_CLOCK })
  const [heartbeat] = await db.select().from(heartbeats).where(eq(heartbeats.name, 'queue'))
  const dayAgo = new Date(Date.now() - DAY_MS)
  const failedIn = (table: typeof projectTasks | typeof workerTasks) =>
    db.$count(table, and(eq(table.state, 'failed'), gte(table.finishedAt, dayAgo)))
  const failed = (await failedIn(projectTasks)) + (await failedIn(workerTasks))
  const hosts = await checkHosts(db)
  const key = await checkEncryptionKey(db)
  const found = [queueProblem(heartbeat?.at), ...gauges.tasks.map(taskProblem), ...hosts.problems, key.problem]
  const problems = found.filter((line) => line !== undefined)
  const lines = [
    `organizations  ${gauges.organizations}`,
    `users          ${gauges.users}`,
    `projects       ${projectsText(gauges, false)}`,
    `branches       ${projectsText(gauges, true)}`,
    `hosts          ${hosts.text}`,
    `encryption     ${key.text}`,
    `open tasks     ${gauges.tasks.map(taskText).join(', ') || 0}`,
    `failed tasks   ${failed} in the last 24 hours`,
    `webhooks       ${gauges.endpoints.enabled} enabled, ${gauges.endpoints.disabled} disabled`,
    `database       ${mib(gauges.databaseBytes)}; ${connectionsOf(gauges)} of ${gauges.connectionsMax} connections`,
    `objects        ${mib(gauges.storageBytes)}`,
    ...problems.map((problem) => `PROBLEM        ${problem}`),
  ]
  return { text: lines.join('\n'), exitCode: problems.length > 0 ? 1 : 0 }
}

type TaskGauge = Gauges['tasks'][number]

const mib = (bytes: number) => `${(bytes / 1024 ** 2).toFixed(1)} MiB`
const sum = (rows: readonly { count: number }[]) => rows.reduce((total, row) => total + row.count, 0)
const connectionsOf = ({ connections }: Gauges) => sum(connections)
const taskText = ({ count, queue, kind, state }: TaskGauge) => `${count} ${queue} ${kind} ${state}`

function projectsText({ projects }: Gauges, isBranch: boolean): string {
  const rows = projects.filter((row) => row.isBranch === isBranch)
  const byStatus = rows.map((row) => `${row.count} ${row.status}`).join(', ')
  return `${sum(rows)}${byStatus && `: ${byStatus}`}`
}

function queueProblem(at: Date | undefined): string | undefined {
  if (!at) return 'the queue has not delivered a heartbeat yet: is the Worker running, and its cron?'
  const seconds = Math.round((Date.now() - at.getTime()) / 1000)
  if (seconds < HEARTBEAT_SECONDS_MAX) return undefined
  return `the last heartbeat of the queue is ${seconds} s old: is the Worker running, and its cron?`
}

/** Asks each host. Without the encryption key, the keys of the hosts cannot be read; the rest of the status is still shown. */
async function checkHosts(db: ControlDb): Promise<{ text: string; problems: (string | undefined)[] }> {
  try {
    const apis = await hostApis(db)
    const problems = await Promise.all([...apis.values()].map(hostProblem))
    const local = sql`${projects.engineState} ->> 'host' = ${LOCAL}`
    const isMissing = !apis.has(LOCAL) && (await db.$count(projects, and(local, isNull(projects.removedAt)))) > 0
    if (isMissing) problems.push(unknownHere(LOCAL))
    return { text: [...apis.keys()].join(', ') || 'none', problems }
  } catch (error) {
    return { text: 'not checked', problems: [`the hosts cannot be asked: ${errorMessage(error)}`] }
  }
}

/** Without ENCRYPTION_KEY, which a monitor need not have, the key is not checked. */
async function checkEncryptionKey(db: ControlDb): Promise<{ text: string; problem?: string | undefined }> {
  try {
    const problem = await findUnopened(db, await targetEncryptionKey(process.env))
    return { text: problem === undefined ? 'the key opens the secrets' : 'the key does not open all secrets', problem }
  } catch (error) {
    return { text: `not checked: ${errorMessage(error)}` }
  }
}

const hostProblem = ({ host, describe }: HostApi): Promise<string | undefined> =>
  describe().then(
    () => undefined,
    (error) => `${host.id} at ${host.url}: ${errorMessage(error)}`,
  )

const taskProblem = ({ queue, kind, oldestDueSeconds }: TaskGauge): string | undefined =>
  oldestDueSeconds !== null && oldestDueSeconds > OVERDUE_SECONDS_MAX
    ? `a task has been due for ${Math.round(oldestDueSeconds)} s: ${queue} ${kind}`
    : undefined
