import { execFileSync } from 'node:child_process'
import { cpSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'

/** `drizzle-kit generate` also exits with 0 if it fails, for instance at a renamed column, which it wants to ask about. */
const UNCHANGED = 'No schema changes'

/** Fails unless the tables of src/model/tables are those of the migrations in drizzle/. */
const copy = mkdtempSync(join(tmpdir(), 'pilothouse-migrations-'))
try {
  cpSync('drizzle', copy, { recursive: true })
  const kit = (...args: string[]) => execFileSync('drizzle-kit', args, { encoding: 'utf8' })
  const out = relative('.', copy)
  kit('check', '--dialect', 'postgresql', '--out', out)
  const generated = kit('generate', '--dialect', 'postgresql', '--schema', './src/model/tables/index.ts', '--out', out)
  if (!generated.includes(UNCHANGED)) {
    console.error('The schema has changes without a migration: run `npm run migrate -- --name <what it does>`.')
    process.exitCode = 1
  }
} finally {
  rmSync(copy, { recursive: true })
}
