import { splitStatements } from '../../../engine/split-statements.ts'
import type { CommitFiles, MigrationRow } from '../../../model/tables/index.ts'
import type { Repository } from '../../../platform/github/repository.ts'
import { type Interest, readCommit, UnusableCommit } from '../../../platform/github/tarball.ts'

/** File names of migrations, as the CLI creates them. */
const MIGRATION = /^(\d{1,32})_(.*)\.sql$/
const MIGRATIONS_MAX = 10_000

/** Returns the paths of the migrations and the seed below the workdir. */
const pathsIn = (workdir: string) => {
  const root = workdir === '.' ? '' : `${workdir}/`
  return { migrations: `${root}migrations/`, seed: `${root}seed.sql` }
}

/** Whether a path is in the workdir. */
export const isWithin = (workdir: string, path: string): boolean => workdir === '.' || path.startsWith(`${workdir}/`)

/** Reads the migrations and the seed in the workdir of a commit. Rejects with UnusableCommit if they are invalid. */
export async function readFiles(repository: Repository, commit: string, workdir: string): Promise<RepositoryFiles> {
  const paths = pathsIn(workdir)
  const files = await readCommit(repository, commit, (path) => classifyPath(path, paths))
  const skipped: string[] = []
  const byVersion = new Map<string, MigrationRow & { path: string }>()
  for (const [path, bytes] of files) {
    if (path === paths.seed) continue
    const [, version = '', name = ''] = MIGRATION.exec(path.slice(paths.migrations.length)) ?? []
    if (version === '') {
      skipped.push(path)
      continue
    }
    const other = byVersion.get(version)
    if (other) throw new UnusableCommit(`${path} and ${other.path} have the same version ${version}`)
    byVersion.set(version, { version, name, statements: statementsOf(textOf(path, bytes)), path })
  }
  if (byVersion.size > MIGRATIONS_MAX) throw new UnusableCommit(`the commit has more than ${MIGRATIONS_MAX} migrations`)
  const migrations = Array.from(byVersion.values(), ({ path: _path, ...row }) => row)
  migrations.sort((a, b) => (a.version < b.version ? -1 : 1))
  const seed = files.get(paths.seed)
  return { migrations, seed: seed ? textOf(paths.seed, seed) : null, skipped }
}

interface RepositoryFiles extends CommitFiles {
  /** SQL files in the folder of migrations that are not named as migrations. */
  skipped: string[]
}

function classifyPath(path: string, { migrations, seed }: ReturnType<typeof pathsIn>): Interest {
  if (path === seed) return 'kept'
  if (path.startsWith(migrations)) {
    const isDirect = !path.slice(migrations.length).includes('/')
    return isDirect && path.endsWith('.sql') ? 'kept' : 'none'
  }
  return migrations.startsWith(`${path}/`) ? 'above' : 'none'
}

const statementsOf = (text: string): string[] => splitStatements(text).map((statement) => statement.text.trim())

function textOf(path: string, bytes: Uint8Array): string {
  const text = decode(bytes)
  // Postgres text cannot contain a NUL.
  if (text === undefined || text.includes('\0')) throw new UnusableCommit(`${path} is not valid UTF-8 text`)
  return text
}

function decode(bytes: Uint8Array): string | undefined {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: false }).decode(bytes)
  } catch {
    return undefined
  }
}
