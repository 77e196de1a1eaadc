import { execFile } from 'node:child_process'
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, it, onTestFinished } from 'vitest'

const root = fileURLToPath(new URL('../..', import.meta.url))

it('the check of migrations fails on a renamed column without a migration', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'pilothouse-check-'))
  onTestFinished(() => rmSync(folder, { recursive: true }))
  for (const name of ['src/model', 'drizzle']) cpSync(join(root, name), join(folder, name), { recursive: true })
  for (const name of ['src/config.ts', 'src/platform', 'node_modules'])
    symlinkSync(join(root, name), join(folder, name))
  const tables = join(folder, 'src/model/tables/connections.ts')
  const text = readFileSync(tables, 'utf8')
  const renamed = text.replace("lastError: text('last_error')", "lastError: text('renamed')")
  expect(renamed).not.toBe(text)
  writeFileSync(tables, renamed)

  const path = `${join(root, 'node_modules/.bin')}${delimiter}${process.env.PATH}`
  const options = { cwd: folder, env: { ...process.env, PATH: path } }
  const outcome = await new Promise((resolve) => {
    execFile(process.execPath, [join(root, 'dev/check-migrations.ts')], options, (error, _, errors) =>
      resolve({ code: error?.code ?? 0, errors }),
    )
  })
  expect(outcome).toEqual({ code: 1, errors: expect.stringContaining('The schema has changes without a migration') })
})
