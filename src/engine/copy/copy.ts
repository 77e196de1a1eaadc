import { dropDatabase, ensureDatabase } from '../database.ts'
import type { CopyRequest } from '../engine.ts'
import { type ProjectNames, projectNames, quoteLiteral } from '../names.ts'
import { dropRoles, ensureRoles, ensureStorageRole } from '../roles.ts'
import type { Server, Session } from '../session.ts'
import { ensureCluster } from '../template.ts'
import { cloneDatabase } from './clone.ts'
import { dropLink } from './link.ts'
import { copyLogically } from './logical.ts'
import { settingsOf } from './settings.ts'
import { UNFINISHED } from './unfinished.ts'

export interface Copy {
  cluster: Server
  /** In the maintenance database, holding the target's lock. */
  admin: Session
  from: ProjectNames
  to: ProjectNames
  runnerPassword: string
  data: boolean
  /** With the rows of `storage.objects`, as bytes stay with the project that a backup is of. */
  objects: boolean
}

/** A database that is already there stays as it is, unless it is what an earlier run left behind. */
export async function copyProject(cluster: Server, admin: Session, request: CopyRequest): Promise<void> {
  const { to: spec, data } = request
  const copy: Copy = {
    cluster,
    admin,
    from: projectNames(request.from),
    to: projectNames(spec.ref),
    runnerPassword: spec.runnerPassword,
    data,
    objects: false,
  }
  await admin.rows('SET statement_timeout = 0')
  await ensureCluster(cluster, admin)
  await ensureRoles(admin, spec.ref, spec)
  await ensureStorageRole(admin, copy.to, spec.runnerPassword)
  const found = await stateOf(admin, copy.to)
  if (found === 'unfinished') await dropDatabase(admin, copy.to)
  await dropLink(admin, copy.to)
  if (found === 'whole') return
  try {
    if (!(data && (await cloneDatabase(copy)))) await copyLogically(copy)
    await finish(copy)
  } catch (error) {
    // What cannot be taken away now, a repeat or a removal does.
    await discard(copy).catch(() => {})
    throw error
  }
}

/** A disk that a copy has filled is not left full. */
async function discard({ admin, to }: Copy): Promise<void> {
  await dropDatabase(admin, to)
  await dropLink(admin, to)
  await dropRoles(admin, to)
}

async function finish(copy: Copy): Promise<void> {
  const { admin, to } = copy
  const settings = await settingsOf(copy)
  await inheritLoginRules(copy)
  await ensureDatabase(admin, to)
  await admin.rows([...settings, `COMMENT ON DATABASE ${to.database} IS NULL`].join(';\n'))
}

/** While nobody can come yet: whom the parent keeps out does not get in before the copy's own settings are applied. */
async function inheritLoginRules({ admin, from, to }: Copy): Promise<void> {
  const [found] = await admin.rows<{ rules: string | null }>(
    `SELECT shobj_description(to_regrole(${quoteLiteral(from.owner)}), 'pg_authid') AS rules`,
  )
  if (found?.rules) await admin.rows(`COMMENT ON ROLE ${to.owner} IS ${quoteLiteral(found.rules)}`)
}

async function stateOf(admin: Session, { database }: ProjectNames): Promise<'none' | 'unfinished' | 'whole'> {
  const [row] = await admin.rows<{ unfinished: boolean }>(
    `SELECT datconnlimit IN (0, -2) OR coalesce(shobj_description(oid, 'pg_database') = ${quoteLiteral(UNFINISHED)}, false)
         AS unfinished FROM pg_database WHERE datname = ${quoteLiteral(database)}`,
  )
  if (!row) return 'none'
  return row.unfinished ? 'unfinished' : 'whole'
}
