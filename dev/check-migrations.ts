import { execFileSync } from 'node:child_process'
import { cpSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'

/** Fails if the tables of src/model/tables differ from the migrations in drizzle/. */
const copy = mkdtempSync(join(tmpdir(), 'pilothouse-migrations-'))
try {
  cpSync('drizzle', copy, { recursive: true })
  const kit = (...args: string[]) => execFileSync('drizzle-kit', args, { encoding: 'utf8' })
  const out = relative('.', copy)
  kit('check', '--dialect', 'postgresql', '--out', out)
  kit('generate', '--dialect', 'postgresql', '--schema', './src/model/tables/index.ts', '--out', out)
  const added = readdirSync(copy).filter((file) => !readdirSync('drizzle').includes(file))
  if (added.length > 0) {
    console.error('The schema has changes without a migration: run `npm run migrate -- --name <what it does>`.')
    process.exitCode = 1
  }
} finally {
  rmSync(copy, { recursive: true })
}
