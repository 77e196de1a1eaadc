import { randomUUID } from 'node:crypto'
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, inject, it } from 'vitest'
import { saveCredentials } from '../../dev/credentials.ts'
import { admin } from '../support/admin.ts'
import { as } from '../support/api.ts'

const folder = mkdtempSync(join(tmpdir(), 'pilothouse-credentials-'))
const file = join(folder, 'credentials.json')
afterAll(() => rmSync(folder, { recursive: true, force: true }))

/** Returns what a start saves, and what it prints about it. */
async function save() {
  const lines: string[] = []
  const reached = { databasePort: 54_322, hostUrl: inject('host').url, s3Url: inject('s3').endpoint }
  const options = { folder, controlUrl: inject('controlUrl'), baseUrl: inject('baseUrl'), ...reached }
  const { credentials, isNew } = await saveCredentials({ ...options, onLine: (line) => lines.push(line) })
  expect(JSON.parse(readFileSync(file, 'utf8'))).toEqual(credentials)
  expect(readdirSync(folder)).toEqual(['credentials.json'])
  expect(statSync(file).mode & 0o777).toBe(0o600)
  return { token: credentials.access_token, lines, isNew }
}

describe('credentials.json', () => {
  it('does not change while its token works', async () => {
    const first = await save()
    expect(await save()).toEqual({ ...first, lines: [], isNew: false })
  })

  it.each(['', '{"base_url": "http://127.0', 'null', '{}'])('gets another token if its content is %j', async (text) => {
    writeFileSync(file, text)
    const { token, lines, isNew } = await save()
    expect(isNew).toBe(true)
    expect((await as(token).get('/v1/profile')).status).toBe(200)
    expect(lines).toEqual([expect.stringContaining(`${file} is damaged`)])
    expect(await save()).toEqual({ token, lines: [], isNew: false })
  })

  it('gets another token for a revoked one, and the start reports the organization', async () => {
    const { token } = await save()
    const revoke = (known: string) => admin('token', 'revoke', known)
    const isNew = expect.stringContaining('is no longer valid: the user owner has a new one')
    await revoke(token)
    const second = await save()
    expect(second.lines).toEqual([isNew])

    const username = `heir-${randomUUID()}`
    await admin('user', 'create', username, `${username}@example.com`)
    await admin('member', 'set', 'my-organization', username, 'owner')
    await admin('member', 'remove', 'my-organization', 'owner')
    await revoke(second.token)
    const third = await save()
    expect(third.lines).toEqual([isNew, expect.stringContaining('stays with its owners')])
    expect((await as(third.token).get('/v1/organizations')).body).toEqual([])

    await admin('member', 'remove', 'my-organization', username)
    await revoke(third.token)
    const last = await save()
    expect(last.lines).toEqual([isNew, expect.stringContaining('owner owns it again')])
    expect((await as(last.token).get('/v1/organizations')).body).toMatchObject([{ slug: 'my-organization' }])
  })
})
