import { execFile } from 'node:child_process'
import { stat } from 'node:fs/promises'
import { dirname } from 'node:path'
import { promisify } from 'node:util'
import { StartError } from '../start-error.ts'

const run = promisify(execFile)

/** The account to run a program as; empty for our own. */
export type Account = { uid: number; gid: number } | { uid?: undefined; gid?: undefined }

/** Postgres refuses to run as root: then it runs as the owner of the data, or as the user `postgres`. */
export async function accountFor(existingFolder: string | undefined): Promise<Account> {
  if (process.getuid?.() !== 0) {
    if (existingFolder) await checkOwner(existingFolder)
    return {}
  }
  if (existingFolder) {
    const { uid, gid } = await stat(existingFolder)
    if (uid !== 0) return { uid, gid }
  }
  return (await postgresUser()) ?? (await createPostgresUser())
}

async function checkOwner(folder: string) {
  if ((await stat(folder)).uid === process.getuid?.()) return
  throw new StartError(`${folder} belongs to another user: start as the user (or root) who made it, or delete it.`)
}

async function postgresUser(): Promise<Account | undefined> {
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
    `Postgres does not run as root and no user for it could be made (${failure}): start as a normal user, or create the user postgres.`,
  )
}

/** Whether the account may walk down to the folder. */
export async function canReach(account: Account, folder: string): Promise<boolean> {
  if (account.uid === undefined) return true
  for (let path = folder; ; path = dirname(path)) {
    const { mode, uid, gid } = await stat(path)
    const executeBit = uid === account.uid ? 0o100 : gid === account.gid ? 0o010 : 0o001
    if ((mode & executeBit) === 0) return false
    if (path === dirname(path)) return true
  }
}
