import { execFile } from 'node:child_process'
import { stat } from 'node:fs/promises'
import { userInfo } from 'node:os'
import { dirname } from 'node:path'
import { promisify } from 'node:util'
import { StartError } from '../dev/start-error.ts'

const run = promisify(execFile)

/** An operating-system account; absent for the daemon's own. */
export type Account = { uid: number; gid: number } | undefined

/** The lowest uid of instances: above those of people, services and most containers. It needs no entry in `/etc/passwd`. */
const FIRST_UID = 600_000

const isRoot = (): boolean => process.getuid?.() === 0

/** The account for a new instance: the lowest free uid if the daemon is root, else the daemon's own account. */
export function nextAccount(taken: Iterable<number>): Account {
  if (!isRoot()) return undefined
  const used = new Set(taken)
  let uid = FIRST_UID
  while (used.has(uid)) uid += 1
  return { uid, gid: uid }
}

/** The account that runs `initdb`. It must not be root and must have a user name. */
export async function initdbAccount(): Promise<Account> {
  if (!isRoot()) return undefined
  return (await postgresUser()) ?? (await createPostgresUser())
}

/** The user name under which the daemon connects to Postgres through a unix socket. */
export function daemonUser(): string {
  try {
    return userInfo().username
  } catch {
    throw new StartError(
      `The user ${process.getuid?.()} has no name on this machine, which Postgres needs: add it to /etc/passwd.`,
    )
  }
}

/** Whether the account may enter the folder. */
export async function canReach(account: Account, folder: string): Promise<boolean> {
  if (!account) return true
  for (let path = folder; ; path = dirname(path)) {
    const { mode, uid, gid } = await stat(path)
    const executeBit = uid === account.uid ? 0o100 : gid === account.gid ? 0o010 : 0o001
    if ((mode & executeBit) === 0) return false
    if (path === dirname(path)) return true
  }
}

async function postgresUser(): Promise<Account> {
  try {
    const [uid, gid] = await Promise.all([run('id', ['-u', 'postgres']), run('id', ['-g', 'postgres'])])
    return { uid: Number(uid.stdout), gid: Number(gid.stdout) }
  } catch {
    return undefined
  }
}

async function createPostgresUser(): Promise<Account> {
  const failure = await run('useradd', ['--system', '--user-group', '--no-create-home', 'postgres']).catch(String)
  const account = await postgresUser()
  if (account) return account
  throw new StartError(
    `initdb does not run as root, and the user postgres could not be created (${failure}): create it, or start as a normal user.`,
  )
}
