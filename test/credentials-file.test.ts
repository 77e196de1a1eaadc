import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, inject, it } from 'vitest'
import { saveCredentials } from '../dev/credentials.ts'
import { as } from './api.ts'

const folder = mkdtempSync(join(tmpdir(), 'pilothouse-credentials-'))
const file = join(folder, 'credentials.json')
afterAll(() => rmSync(folder, { recursive: true, force: true }))

/** What a start saves, and what it says of it. */
async function save() {
  const said: string[] = []
  const options = { folder, controlUrl: inject('controlUrl'), baseUrl: inject('baseUrl') }
  const credentials = await saveCredentials({ ...options, onLine: (line) => said.push(line) })
  expect(JSON.parse(readFileSync(file, 'utf8'))).toEqual(credentials)
  expect(readdirSync(folder)).toEqual(['credentials.json'])
  expect(statSync(file).mode & 0o777).toBe(0o600)
  return { token: credentials.access_token, said }
}

describe('credentials.json', () => {
  it('stays as it is while its token works', async () => {
    const first = await save()
    expect(await save()).toEqual({ ...first, said: [] })
  })

  it.each(['', '{"base_url": "http://127.0', 'null', '{}'])('gets another token where it holds %j', async (text) => {
    writeFileSync(file, text)
    const { token, said } = await save()
    expect((await as(token).get('/v1/profile')).status).toBe(200)
    expect(said).toEqual([expect.stringContaining(`${file} was not as we wrote it`)])
    expect(await save()).toEqual({ token, said: [] })
  })
})
