import { and, eq, isNull, ne, type SQL, sql } from 'drizzle-orm'
import * as z from 'zod'
import { HostName } from '../../src/config.ts'
import { type HostApi, type HostDescription, hostApi, Instances } from '../../src/engine/host/client.ts'
import { LOCAL } from '../../src/engine/host/directory.ts'
import { isOpenTask } from '../../src/management/projects/projects/tasks.ts'
import { hostAssociatedData } from '../../src/model/secrets/associated-data.ts'
import { hosts, projects, projectTasks, REGION_CODES } from '../../src/model/tables/index.ts'
import { seal } from '../../src/platform/secrets/seal.ts'
import { settingProblem } from '../../src/platform/setting-problem.ts'
import type { ControlDb } from '../seed.ts'
import { errorMessage, StartError } from '../start-error.ts'
import { targetEncryptionKey, targetHost } from '../target.ts'
import { change, type Transaction } from './change.ts'
import type { Command, Options } from './command.ts'
import { hostApis, openHostKey, UNUSED_ADDRESS } from './host-apis.ts'

type Row = typeof hosts.$inferSelect

export const hostCommands: Record<string, Command> = {
  'hosts add': {
    summary: 'Add a database host, or change its address and key.',
    args: ['name', 'url'],
    options: '--database-host host [--database-port port] [--database-domain domain]',
    run: (db, [name = '', url = ''], options) => addHost(db, readAddress(name, url, options)),
  },
  'hosts drain': {
    summary: 'Place no new projects on a database host; those that it has stay.',
    args: ['name'],
    run: (db, [name = '']) => drainHost(db, name),
  },
  'hosts remove': {
    summary:
      'Remove a database host that has no projects; --lost removes a lost host, and ends the deletion of its projects.',
    args: ['name'],
    options: '[--lost]',
    run: (db, [name = ''], options) => removeHost(db, { name, isLost: options.lost === true }),
  },
  'hosts list': {
    summary: 'List the database hosts.',
    args: [],
    run: (db) => listHosts(db),
  },
}

/** Default port of a host's gateway. */
const POSTGRES_PORT = '54322'

/** The arguments of `hosts add`, by the names that the operator gives them. */
const Address = z
  .object({
    name: z.string().regex(/^[a-z][a-z0-9-]{0,39}$/, 'must be lowercase letters, digits and hyphens, such as fra-1'),
    url: z.url({ protocol: /^https?$/ }).transform((url) => url.replace(/\/+$/, '')),
    '--database-host': z
      .string('is missing: it is the address at which clients reach the databases')
      .toLowerCase()
      .pipe(z.union([HostName, z.ipv6()], 'must be a host name or an IP address')),
    '--database-port': z.coerce.number('must be a number').int().min(1).max(65_535),
    '--database-domain': z.string().toLowerCase().pipe(HostName).optional(),
  })
  .transform(({ name, url, ...flags }) => ({
    ...{ name, url, databaseHost: flags['--database-host'], databasePort: flags['--database-port'] },
    databaseDomain: flags['--database-domain'],
  }))

function readAddress(name: string, url: string, options: Options): z.output<typeof Address> {
  const given = {
    ...{ name, url, '--database-host': options['database-host'] },
    '--database-port': options['database-port'] ?? POSTGRES_PORT,
    '--database-domain': options['database-domain'],
  }
  const read = Address.safeParse(given)
  if (!read.success) throw new StartError(read.error.issues.map((issue) => settingProblem(issue, given)).join('\n'))
  return read.data
}

/** Adds a host, or updates an existing one: it gets the new address and key, and accepts projects again if it was draining. */
async function addHost(
  db: ControlDb,
  { databaseDomain: domain, ...address }: z.output<typeof Address>,
): Promise<string> {
  const { name, url } = address
  const key = process.env.HOST_KEY
  if (!key)
    throw new StartError('Set HOST_KEY to the key of the host: other users of the machine could read an argument.')
  const encryptionKey = await targetEncryptionKey(process.env)
  const { id, region: named, versions } = await askHost({ name, url }, key)
  await requireProjects(db, hostApi({ ...UNUSED_ADDRESS, id: name, url, key }, undefined))
  await requireUnnamed(db, { name, url, id })
  const region = REGION_CODES.find((code) => code === named)
  if (!region) throw new StartError(`${url} is in ${named}: HOST_REGION must be one of ${REGION_CODES.join(', ')}`)
  const sealedKey = await seal(encryptionKey, key, hostAssociatedData(name))
  const values = { ...address, databaseDomain: domain ?? null, region, sealedKey, state: 'active' as const }
  return change(db, async ({ tx, trace }) => {
    const [known] = await tx.select().from(hosts).where(eq(hosts.name, name)).for('update')
    await tx
      .insert(hosts)
      .values({ ...values, addedAt: new Date() })
      .onConflictDoUpdate({ target: hosts.name, set: values })
    const { databaseHost, databasePort } = address
    const at = { databaseHost, databasePort, ...(domain !== undefined && { databaseDomain: domain }) }
    await tx
      .update(projects)
      .set({ engineState: sql`${projects.engineState} || ${JSON.stringify({ at })}::jsonb` })
      .where(sql`${projects.engineState} ->> 'host' = ${name}`)
    await trace({ action: 'host.add', detail: { host: name, url, region } })
    const done = known ? (known.state === 'draining' ? 'changed, is no longer draining' : 'changed') : 'added'
    return [
      `${name} was ${done} and takes projects in ${region}, with Postgres ${versions.map(({ version }) => version).join(' and ')}`,
      `clients reach their databases at ${clientAddress(values)}`,
    ].join('\n')
  })
}

const clientAddress = ({
  databaseHost,
  databasePort,
  databaseDomain,
}: Pick<Row, 'databaseHost' | 'databasePort' | 'databaseDomain'>) =>
  `${databaseHost}:${databasePort}${databaseDomain === null ? '' : ` and db.<ref>.${databaseDomain}:${databasePort}`}`

/** Refuses a second name for a host: after a move, its instances would be removed as copies that the move has left behind. */
async function requireUnnamed(
  db: ControlDb,
  { name, url, id }: Pick<Row, 'name' | 'url'> & Pick<HostDescription, 'id'>,
) {
  for (const [other, api] of await hostApis(db)) {
    if (other === name || id === undefined) continue
    // A host that does not answer cannot be the one that just did.
    const known = await api.describe().catch(() => undefined)
    if (known?.id === id) throw new StartError(`${url} is the host ${other} already`)
  }
}

/** Refuses another machine under the name of a host with projects: they would no longer be found. */
async function requireProjects(db: ControlDb, { host: { id: name, url }, ask }: HostApi): Promise<void> {
  const refs = await projectsOf(db, name)
  if (refs.length === 0) return
  const found = new Set((await ask(Instances, { method: 'GET', path: '/instances' })).map((instance) => instance.name))
  if (refs.some((ref) => found.has(ref))) return
  throw new StartError(
    `${url} has none of the ${refs.length} projects of ${name}, such as ${refs[0]}: add it under another name`,
  )
}

async function projectsOf(db: Pick<ControlDb, 'select'>, host: string, which?: SQL): Promise<string[]> {
  const isThere = and(sql`${projects.engineState} ->> 'host' = ${host}`, isNull(projects.removedAt), which)
  return (await db.select({ ref: projects.ref }).from(projects).where(isThere)).map(({ ref }) => ref)
}

/** Removes a host. With `isLost`, its projects may be `GOING_DOWN`: their deletion waits for the host until its row is gone. */
async function removeHost(db: ControlDb, { name, isLost }: { name: string; isLost: boolean }): Promise<string> {
  // Without its row, `local` is the host of the settings again.
  const settings = name === LOCAL ? await targetHost(process.env) : undefined
  if (settings) await requireProjects(db, hostApi(settings, undefined))
  if (isLost) await requireLost(db, name)
  return change(db, async ({ tx, trace }) => {
    const [host] = await tx.delete(hosts).where(eq(hosts.name, name)).returning()
    if (!host) throw new StartError(`no host is called "${name}"${name === LOCAL ? `: ${REMOVE_LOCAL}` : ''}`)
    if (!settings) await requireUnused(tx, { name, isLost })
    await tx
      .update(projects)
      .set({ engineState: sql`${projects.engineState} - 'at'` })
      .where(sql`${projects.engineState} ->> 'host' = ${name}`)
    await trace({ action: 'host.remove', detail: { host: name } })
    return `${name} is no longer a host of this installation`
  })
}

async function requireUnused(tx: Transaction, { name, isLost }: { name: string; isLost: boolean }): Promise<void> {
  const { length } = await projectsOf(tx, name, isLost ? ne(projects.status, 'GOING_DOWN') : undefined)
  if (length > 0) throw new StartError(`${name} has ${countText(length)}: move or delete them first`)
  // Until the switch, a project that is being moved counts as one of the host that it leaves.
  const isMoved = and(
    ...[eq(projectTasks.kind, 'move'), isOpenTask],
    sql`${name} in (${projectTasks.input} ->> 'from', ${projectTasks.input} ->> 'to')`,
  )
  const moved = await tx.$count(projectTasks, isMoved)
  if (moved > 0)
    throw new StartError(`${name} has ${countText(moved)} being moved from or to it: wait for the end of each move`)
}

async function requireLost(db: ControlDb, name: string): Promise<void> {
  if (await (await hostApis(db)).get(name)?.answers())
    throw new StartError(`${name} answers: remove it without --lost, once its projects are moved or deleted`)
}

const countText = (count: number) => `${count} ${count === 1 ? 'project' : 'projects'}`

function drainHost(db: ControlDb, name: string): Promise<string> {
  return change(db, async ({ tx, trace }) => {
    const [host] = await tx.update(hosts).set({ state: 'draining' }).where(eq(hosts.name, name)).returning()
    if (!host) throw new StartError(`no host is called "${name}"${name === LOCAL ? `: ${DRAIN_LOCAL}` : ''}`)
    await trace({ action: 'host.drain', detail: { host: name } })
    return `${name} takes no new projects; its projects stay`
  })
}

const REMOVE_LOCAL = `it exists only in the settings (HOST_URL; \`npm start\` runs it). To place no projects there, add it under this name, then drain it`
const DRAIN_LOCAL = `it exists only in the settings. Add it under this name, then drain it`

async function listHosts(db: ControlDb): Promise<string> {
  const rows = await db.select().from(hosts).orderBy(hosts.name)
  const on = sql<string>`${projects.engineState} ->> 'host'`
  const counted = await db
    .select({ name: on, count: sql<number>`count(*)::int` })
    .from(projects)
    .where(sql`${on} is not null`)
    .groupBy(on)
  const counts = new Map(counted.map(({ name, count }) => [name, count]))
  const encryptionKey = rows.length > 0 ? await targetEncryptionKey(process.env) : ''
  const lines = await Promise.all(rows.map((row) => hostLine(row, counts.get(row.name) ?? 0, encryptionKey)))
  const local = counts.get(LOCAL)
  if (local !== undefined && !rows.some(({ name }) => name === LOCAL))
    lines.unshift(`${LOCAL}  in the settings  ${countText(local)}`)
  return lines.join('\n') || 'no hosts except the one in the settings'
}

async function hostLine(row: Row, count: number, encryptionKey: string): Promise<string> {
  const { name, state, region, url } = row
  const start = `${name}  ${state}  ${region}  ${url}  ${clientAddress(row)}  ${countText(count)}`
  try {
    return `${start}  ${describe(await askHost(row, await openHostKey(encryptionKey, row)))}`
  } catch (error) {
    return `${start}  ${errorMessage(error)}`
  }
}

const GIGABYTE = 1024 ** 3

function describe({ versions, capacity: { disk_free_bytes, memory_free_bytes } }: HostDescription): string {
  const [disk, memory] = [disk_free_bytes, memory_free_bytes].map((bytes) => (bytes / GIGABYTE).toFixed(1))
  return `Postgres ${versions.map(({ version }) => version).join(', ')}  free: ${disk} GB disk, ${memory} GB memory`
}

function askHost({ name, url }: Pick<Row, 'name' | 'url'>, key: string): Promise<HostDescription> {
  return hostApi({ ...UNUSED_ADDRESS, id: name, url, key }, undefined)
    .describe()
    .catch((error) => {
      throw new StartError(`${url}: ${errorMessage(error)}`)
    })
}
