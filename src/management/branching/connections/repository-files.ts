import { splitStatements } from '../../../engine/split-statements.ts'
import type { CommitFiles, MigrationRow } from '../../../model/tables/index.ts'
import type { Repository } from '../../../platform/github/repository.ts'
import { type Interest, readCommit, UnusableCommit } from '../../../platform/github/tarball.ts'

/** As the command line names them. */
const MIGRATION = /^(\d{1,32})_(.*)\.sql$/
const MIGRATIONS_MAX = 10_000

/** Where things are in a repository, of which the workdir is a part. */
const placesIn = (workdir: string) => {
  const root = workdir === '.' ? '' : `${workdir}/`
  return { migrations: `${root}migrations/`, seed: `${root}seed.sql` }
}

/** Whether a path is below the workdir. */
export const isWithin = (workdir: string, path: string): boolean => workdir === '.' || path.startsWith(`${workdir}/`)

/** The migrations and the seed that a commit has in the workdir. Rejects with UnusableCommit where they cannot be taken. */
export async function readFiles(repository: Repository, commit: string, workdir: string): Promise<Taken> {
  const places = placesIn(workdir)
  const files = await readCommit(repository, commit, (path) => interestIn(path, places))
  const passedOver: string[] = []
  const byVersion = new Map<string, MigrationRow & { path: string }>()
  for (const [path, bytes] of files) {
    if (path === places.seed) continue
    const [, version = '', name = ''] = MIGRATION.exec(path.slice(places.migrations.length)) ?? []
    if (version === '') {
      passedOver.push(path)
      continue
    }
    const other = byVersion.get(version)
    if (other) throw new UnusableCommit(`${path} and ${other.path} have the same version ${version}`)
    byVersion.set(version, { version, name, statements: statementsOf(textOf(path, bytes)), path })
  }
  if (byVersion.size > MIGRATIONS_MAX) throw new UnusableCommit(`it has more than ${MIGRATIONS_MAX} migrations`)
  const migrations = Array.from(byVersion.values(), ({ path: _path, ...row }) => row)
  migrations.sort((a, b) => (a.version < b.version ? -1 : 1))
  const seed = files.get(places.seed)
  return { migrations, seed: seed ? textOf(places.seed, seed) : null, passedOver }
}

interface Taken extends CommitFiles {
  /** Files among the migrations whose names are not those of migrations. */
  passedOver: string[]
}

function interestIn(path: string, { migrations, seed }: ReturnType<typeof placesIn>): Interest {
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
  // Postgres holds none.
  if (text === undefined || text.includes('\0')) throw new UnusableCommit(`${path} is no text in UTF-8`)
  return text
}

function decode(bytes: Uint8Array): string | undefined {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: false }).decode(bytes)
  } catch {
    return undefined
  }
}
