import { mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { fingerprint } from '../../dev/bundle.ts'

it("the hash of a bundle's sources changes with each name and byte, and is undefined if a part is missing", () => {
  const root = mkdtempSync(join(tmpdir(), 'pilothouse-sources-'))
  onTestFinished(() => rmSync(root, { recursive: true }))
  const write = (path: string, text: string) => writeFileSync(join(root, path), text)
  mkdirSync(join(root, 'src/area'), { recursive: true })
  write('src/a.ts', 'a')
  write('src/area/b.ts', 'b')
  write('settings.toml', 'x')
  const now = () => fingerprint(root, ['src', 'settings.toml'])
  const seen = [now()]
  for (const change of [
    () => write('src/area/b.ts', 'c'),
    () => write('src/area/new.ts', ''),
    () => renameSync(join(root, 'src/area/new.ts'), join(root, 'src/area/newer.ts')),
    () => renameSync(join(root, 'src/area'), join(root, 'src/areas')),
    () => rmSync(join(root, 'src/areas/newer.ts')),
    () => write('settings.toml', 'xy'),
  ]) {
    change()
    seen.push(now())
  }
  expect(new Set(seen).size).toBe(7)
  expect(now()).toBe(seen.at(-1))
  rmSync(join(root, 'settings.toml'))
  expect(now()).toBeUndefined()
})
