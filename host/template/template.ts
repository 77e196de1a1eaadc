import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { chown, mkdir, mkdtemp, readdir, rename, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { errorCode } from '../../dev/start-error.ts'
import { type Account, canReach, daemonUser, initdbAccount } from '../accounts.ts'
import { withAdminAt } from '../instances/admin.ts'
import { exists, ownAll, syncFiles, syncFolder } from '../instances/files.ts'
import { isAlive, removeData, startServer } from '../instances/server.ts'
import type { Programs } from '../instances/types.ts'
import { roles, SUPERUSER } from './roles.ts'
import { schemas } from './schemas.ts'

const run = promisify(execFile)

interface TemplateOptions {
  /** The daemon's folder; templates are in `<root>/templates`. */
  root: string
  programs: Programs
  /** Whether to flush the template to disk before it counts as complete. */
  isDurable: boolean
}

const INITDB_OPTIONS = [
  `--username=${SUPERUSER}`,
  ...['--encoding=UTF8', '--locale=C', '--locale-provider=builtin', '--builtin-locale=C.UTF-8'],
  ...['--auth=peer', '--wal-segsize=1', '--data-checksums', '--no-instructions', '--no-sync'],
  // Recycled WAL segments would stay in the template and be copied.
  ...['--set=min_wal_size=2MB', '--set=max_wal_size=2MB'],
]

/** Settings of the server that builds the template; each instance has a configuration of its own. */
const SERVER_OPTIONS = {
  fsync: 'off',
  search_path: 'pg_catalog',
  log_checkpoints: 'off',
  shared_preload_libraries: 'pg_stat_statements',
  'pg_stat_statements.max': '1000',
  'pg_stat_statements.save': 'off',
}

/** Files that let only the daemon's account log in without a password, and as any role. */
const ACCESS_FILES = (user: string): Readonly<Record<string, string>> => ({
  'pg_hba.conf': 'local all all peer map=host\nlocal replication all peer map=host\n',
  'pg_ident.conf': `host "${user}" all\n`,
})

/**
 * Returns the folder that new instances of this version are copied from, and builds it if it does not exist. It belongs to the
 * daemon's account; a copy must be given to the account of its instance.
 */
export async function ensureTemplate({ root, programs, isDurable }: TemplateOptions): Promise<string> {
  const templates = join(root, 'templates')
  const sql = [...roles(), ...schemas()]
  const files = ACCESS_FILES(daemonUser())
  const content = [programs.version, INITDB_OPTIONS, SERVER_OPTIONS, sql, files]
  const hash = createHash('sha256').update(JSON.stringify(content)).digest('hex').slice(0, 16)
  const name = `${programs.major}-${hash}`
  const target = join(templates, name)
  if (!(await exists(target))) {
    await mkdir(templates, { recursive: true, mode: 0o700 })
    const draft = join(templates, `${name}.draft-${process.pid}-${Date.now().toString(36)}${drafts++}`)
    try {
      await build({ draft, programs, sql, files, isDurable })
      await moveInto(draft, target)
      if (isDurable) await syncFolder(templates)
    } finally {
      await rm(draft, { recursive: true, force: true })
    }
  }
  await removeOthers(templates, name, programs.major)
  return target
}

let drafts = 0

interface Build {
  draft: string
  programs: Programs
  sql: readonly string[]
  files: Readonly<Record<string, string>>
  isDurable: boolean
}

async function build({ draft, programs, sql, files, isDurable }: Build): Promise<void> {
  const account = await initCluster(draft, programs)
  for (const [name, text] of Object.entries(files)) await writeFile(join(draft, name), text)
  await runSql({ draft, programs, account }, sql)
  await removeSpaceMaps(draft)
  if (isDurable) await syncFiles(draft)
  // Other programs may use the account that ran initdb.
  if (account) await ownAll(draft, { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 })
}

/** Creates a data folder with only Postgres's own roles and schemas. Returns its owner, the account that runs initdb. */
export async function initCluster(data: string, { bin }: Programs): Promise<Account> {
  const account = await initdbAccount()
  await mkdir(data, { mode: 0o700 })
  if (account) await chown(data, account.uid, account.gid)
  // The account may be unable to enter the parents of the folder, but a process can always use its working directory.
  const path = (await canReach(account, data)) ? data : '/proc/self/cwd'
  const program = join(bin, 'initdb')
  const options = { ...account, cwd: data, env: { ...process.env, LC_ALL: 'C' } }
  await run(program, [`--pgdata=${path}`, ...INITDB_OPTIONS], options).catch((error) => {
    // Only a program that has started ends with a number.
    if (typeof error.code === 'string') throw error
    throw new Error(`${program} failed (exit code ${error.code}): ${error.stderr.trim().slice(-10_000)}`)
  })
  return account
}

/**
 * Runs the statements in a normal server: in single-user mode objects would get oids of Postgres's own objects, for which
 * row-level security does not apply.
 */
async function runSql(
  { draft, programs, account }: Pick<Build, 'draft' | 'programs'> & { account: Account },
  sql: readonly string[],
) {
  const scratch = await mkdtemp(join(tmpdir(), 'pilothouse-template-'))
  try {
    if (account) await chown(scratch, account.uid, account.gid)
    const options = { ...SERVER_OPTIONS, listen_addresses: '', unix_socket_directories: scratch }
    const lines = Object.entries(options).map(([name, value]) => `${name} = '${value}'`)
    await writeFile(join(draft, 'postgresql.conf'), `${lines.join('\n')}\n`)
    const server = await startServer({ paths: { data: draft, log: join(scratch, 'log') }, programs, account })
    try {
      await withAdminAt(scratch, 'postgres', async (admin) => {
        for (const statement of sql) await admin.rows(statement)
        await admin.rows('CHECKPOINT')
      })
    } finally {
      await server.stop()
    }
  } finally {
    await rm(scratch, { recursive: true, force: true })
  }
}

/** Removes free space and visibility maps: they are a fifth of all files, and Postgres recreates them as needed. */
async function removeSpaceMaps(data: string): Promise<void> {
  for (const entry of await readdir(data, { withFileTypes: true, recursive: true })) {
    if (/^\d+_(fsm|vm)$/.test(entry.name)) await rm(join(entry.parentPath, entry.name))
  }
}

/** Renames the draft. If another daemon was faster, its template is the same. */
async function moveInto(draft: string, target: string): Promise<void> {
  await rename(draft, target).catch((error) => {
    if (!['ENOTEMPTY', 'EEXIST'].includes(errorCode(error) ?? '')) throw error
  })
}

/** Removes outdated templates of this version, and drafts whose daemon no longer runs. */
async function removeOthers(templates: string, name: string, major: string): Promise<void> {
  for (const other of await readdir(templates)) {
    if (other === name || !other.startsWith(`${major}-`)) continue
    const [, builder] = /\.draft-(\d+)-/.exec(other) ?? []
    if (builder && (await isAlive(Number(builder)))) continue
    await removeData(join(templates, other))
  }
}
