import { createHmac } from 'node:crypto'
import { and, eq } from 'drizzle-orm'
import { beforeAll, describe, expect, inject, it } from 'vitest'
import { openFunctionSecret } from '../../../src/model/secrets/function.ts'
import { functionSecrets, projects } from '../../../src/model/tables/index.ts'
import { type Caller, control, newOrganization } from '../../support/api.ts'
import { act, type BranchReply, newBranch, untilBranch } from '../../support/branches.ts'
import { deploy, download, keysOf, removeKeys } from '../../support/deploys.ts'
import { extended } from '../../support/extended.ts'
import { newProject } from '../../support/projects.ts'

let owner: Caller
let ref: string
let branch: BranchReply
let own: string

const source = (text: string) => ({ 'index.ts': `export default "${text}"` })
const deployText = (to: string, slug: string, text: string) => deploy(owner, to, { slug, files: source(text) })
const slugs = async (of: string) =>
  (await owner.get(`/v1/projects/${of}/functions`)).body.map(({ slug }: { slug: string }) => slug).sort()
const text = async (of: string, slug: string) =>
  /"(.*)"/.exec((await download(owner, of, slug))['source/index.ts'] ?? '')?.[1]
const setSecrets = (of: string, values: Record<string, string>) =>
  owner.post(
    `/v1/projects/${of}/secrets`,
    Object.entries(values).map(([name, value]) => ({ name, value })),
  )
const setAuth = async (of: string, values: Record<string, unknown>) =>
  expect(await owner.patch(`/v1/projects/${of}/config/auth`, values)).toMatchObject({ status: 200 })
const authOf = async (of: string) => (await owner.get(`/v1/projects/${of}/config/auth`)).body
const hmac = (of: string, secret: string) => createHmac('sha256', of).update(secret).digest('hex')
async function secretsOf(of: string): Promise<Record<string, string>> {
  const rows = await control.select().from(functionSecrets).where(eq(functionSecrets.projectRef, of))
  const key = inject('encryptionKey')
  const opened = rows.map(async ({ name, sealedValue }) => [name, await openFunctionSecret(key, of, name, sealedValue)])
  return Object.fromEntries(await Promise.all(opened))
}
const generationOf = async (of: string) =>
  (await control.select({ n: projects.secretsGeneration }).from(projects).where(eq(projects.ref, of)))[0]?.n ?? 0
const merged = async () => {
  expect(await act(owner, branch, 'merge')).toMatchObject({ deploy: 'EXITED' })
  await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
}

beforeAll(async () => {
  const organization = await newOrganization()
  owner = organization.owner
  ref = await newProject(organization)
  await deployText(ref, 'same', 'of the parent')
  await deploy(owner, ref, { slug: 'open', files: source('open'), metadata: { verify_jwt: false, name: 'Open' } })
  await setSecrets(ref, { SHARED: 'parent', OVER: 'parent' })
  await setAuth(ref, { jwt_exp: 70, external_x_client_id: 'x', external_x_secret: 'parent', external_x_enabled: true })
  branch = await newBranch(owner, ref, { secrets: { OVER: 'branch', ONLY: 'branch' } })
  own = branch.project_ref
})

describe('the configuration of Auth of a branch', () => {
  it("is its parent's, with secrets that only it can read, until it is changed", async () => {
    const [theirs, ours] = await Promise.all([ref, own].map(authOf))
    expect(ours).toEqual({ ...theirs, external_x_secret: hmac(own, 'parent') })
    expect(theirs).toMatchObject({ jwt_exp: 70, external_x_secret: hmac(ref, 'parent') })
    await setAuth(own, { external_x_secret: theirs.external_x_secret })
    expect(await authOf(own)).toEqual(ours)
    await setAuth(own, { external_x_enabled: false, external_x_secret: null })
    expect(await authOf(own)).toMatchObject({ jwt_exp: 70, external_x_secret: null })
    expect(await authOf(ref)).toEqual(theirs)
  })
})

describe('the functions of a branch', () => {
  it("are its parent's, with secrets of its own beside the parent's", async () => {
    expect(await slugs(own)).toEqual(['open', 'same'])
    expect(await text(own, 'same')).toBe('of the parent')
    const [theirs, ours] = await Promise.all(
      [ref, own].map(async (of) => (await owner.get(`/v1/projects/${of}/functions/open`)).body),
    )
    expect(ours).toMatchObject({ name: 'Open', verify_jwt: false, version: 1, ezbr_sha256: theirs.ezbr_sha256 })
    expect(ours.id).not.toBe(theirs.id)
    expect(ours.created_at).toBeGreaterThan(theirs.updated_at)
    expect(ours.updated_at).toBeGreaterThanOrEqual(ours.created_at)
    expect(ours.entrypoint_path).toContain(`user_fn_${own}_${ours.id}_1/source/index.ts`)
    expect(await secretsOf(own)).toEqual({ SHARED: 'parent', OVER: 'branch', ONLY: 'branch' })
    expect(await secretsOf(ref)).toEqual({ SHARED: 'parent', OVER: 'parent' })
    expect(await generationOf(own)).toBe(1)
  })

  it('reach the parent with a merge if they were changed, and later changes of the parent stay', async () => {
    await deployText(own, 'same', 'of the branch')
    await deployText(own, 'added', 'of the branch')
    await deployText(own, 'open', 'of the branch')
    await deployText(ref, 'open', 'later of the parent')
    await setSecrets(own, { ONLY: 'again', MORE: 'branch' })
    await merged()
    expect(await slugs(ref)).toEqual(['added', 'open', 'same'])
    expect(await text(ref, 'same')).toBe('of the branch')
    expect(await text(ref, 'added')).toBe('of the branch')
    expect(await text(ref, 'open')).toBe('later of the parent')
    expect(await secretsOf(ref)).toEqual({ SHARED: 'parent', OVER: 'parent' })
    const { body } = await owner.get(`/v1/projects/${ref}/functions/same`)
    const commented = { 'index.ts': `// Only the comment is new.\n${source('of the branch')['index.ts']}` }
    await deploy(owner, own, { slug: 'added', files: commented })
    await merged()
    expect((await download(owner, ref, 'added'))['source/index.ts']).toBe(commented['index.ts'])
    expect((await owner.get(`/v1/projects/${ref}/functions/same`)).body).toEqual(body)
  })

  it('receive the later changes of the parent with a push, and keep those of the branch', async () => {
    await deployText(own, 'same', 'on the branch')
    await deployText(ref, 'new', 'of the parent')
    await setSecrets(ref, { SHARED: 'changed', OVER: 'changed' })
    expect(await act(owner, branch, 'push')).toMatchObject({ deploy: 'EXITED' })
    await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
    expect(await slugs(own)).toEqual(['added', 'new', 'open', 'same'])
    expect(await text(own, 'open')).toBe('later of the parent')
    expect(await text(own, 'same')).toBe('on the branch')
    expect(await secretsOf(own)).toEqual({ SHARED: 'changed', OVER: 'branch', ONLY: 'again', MORE: 'branch' })
  })

  it("are exactly its parent's after a reset", async () => {
    await deployText(own, 'extra', 'of the branch')
    await setAuth(own, { jwt_exp: 80 })
    await setAuth(ref, { jwt_exp: 75, site_url: 'https://parent.example' })
    const generation = await generationOf(own)
    expect(await act(owner, branch, 'reset')).toMatchObject({ deploy: 'EXITED' })
    await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
    expect(await slugs(own)).toEqual(['added', 'new', 'open', 'same'])
    expect(await text(own, 'same')).toBe('of the branch')
    expect(await generationOf(own), 'programs start again, as the address of the database may differ').toBe(
      generation + 1,
    )
    expect(await authOf(own)).toMatchObject({ jwt_exp: 80, site_url: 'https://parent.example' })
  })

  extended(
    'stay deleted after they were deleted, and return if they were changed later',
    async () => {
      await owner.delete(`/v1/projects/${ref}/functions/same`)
      await deployText(own, 'added', 'later of the branch')
      await owner.delete(`/v1/projects/${ref}/functions/added`)
      await deployText(ref, 'both', 'of the parent')
      await merged()
      expect(await slugs(ref)).toEqual(['both', 'new', 'open'])
      await owner.delete(`/v1/projects/${own}/functions/open`)
      await owner.delete(`/v1/projects/${own}/secrets`, ['SHARED', 'ONLY'])
      expect(await act(owner, branch, 'push')).toMatchObject({ deploy: 'EXITED' })
      await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
      expect(await slugs(own)).toEqual(['added', 'both', 'new', 'same'])
      expect(Object.keys(await secretsOf(own)).sort()).toEqual(['MORE', 'OVER'])
      await deployText(own, 'same', 'after the deletion')
      await setSecrets(ref, { SHARED: 'after the deletion' })
      await merged()
      expect(await slugs(ref)).toEqual(['both', 'new', 'open', 'same'])
      expect(await act(owner, branch, 'push')).toMatchObject({ deploy: 'EXITED' })
      await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
      expect(await secretsOf(own)).toMatchObject({ SHARED: 'after the deletion' })
      expect(await act(owner, branch, 'reset')).toMatchObject({ deploy: 'EXITED' })
      await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
      expect(await slugs(own)).toEqual(['both', 'new', 'open', 'same'])
      expect(await secretsOf(own)).toMatchObject({ SHARED: 'after the deletion', ONLY: 'branch' })
    },
    150_000,
  )

  it('end the run as FUNCTIONS_FAILED with a reason if they cannot be copied, and are copied by the next one', async () => {
    const before = await keysOf(ref)
    await deployText(ref, 'lost', 'lost')
    const keys = (await keysOf(ref)).filter((key) => !before.includes(key))
    await removeKeys(keys)
    const reply = await owner.post(`/v1/branches/${own}/push`, {})
    expect(await untilFailed(reply.body.workflow_run_id)).toContain('the files of the function lost are missing')
    await deployText(ref, 'lost', 'found')
    expect(await act(owner, branch, 'push')).toMatchObject({ deploy: 'EXITED' })
    await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
    expect(await text(own, 'lost')).toBe('found')
  })

  async function untilFailed(run: string): Promise<string> {
    await untilBranch(owner, branch, 'FUNCTIONS_FAILED')
    const log = await owner.get(`/v1/projects/${own}/actions/${run}/logs`)
    expect(log.body).toContain('deploying lost')
    return log.body
  }

  it('end the run if the secrets of the branch would be too large', async () => {
    const large = (name: string) =>
      Object.fromEntries(Array.from({ length: 17 }, (_, n) => [`${name}${n}`, 'x'.repeat(24_576)]))
    await setSecrets(ref, large('PARENT'))
    await setSecrets(own, large('OWN'))
    const before = await secretsOf(own)
    const { body } = await owner.post(`/v1/branches/${own}/push`, {})
    await untilBranch(owner, branch, 'FUNCTIONS_FAILED')
    const log = await owner.get(`/v1/projects/${own}/actions/${body.workflow_run_id}/logs`)
    expect(log.body).toContain('at most 768 KiB in total')
    expect(await secretsOf(own)).toEqual(before)
    await owner.delete(`/v1/projects/${ref}/secrets`, Object.keys(large('PARENT')))
    await owner.delete(`/v1/projects/${own}/secrets`, Object.keys(large('OWN')))
  })

  it('end the run if the branch would have too many secrets', async () => {
    await setSecrets(ref, Object.fromEntries(Array.from({ length: 98 }, (_, n) => [`N${n}`, ''])))
    const before = await secretsOf(own)
    const { body } = await owner.post(`/v1/branches/${own}/push`, {})
    await untilBranch(owner, branch, 'FUNCTIONS_FAILED')
    const log = await owner.get(`/v1/projects/${own}/actions/${body.workflow_run_id}/logs`)
    expect(log.body).toContain('exceed the limit (at most 100)')
    expect(await secretsOf(own)).toEqual(before)
  })
})

it('a secret that a function cannot have makes the branch be refused', async () => {
  const reply = await owner.post(`/v1/projects/${ref}/branches`, { branch_name: 'no', secrets: { SUPABASE_URL: 'x' } })
  expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining('body.secrets.SUPABASE_URL') } })
  const where = and(eq(projects.parentRef, ref), eq(projects.name, 'no'))
  expect(await control.select().from(projects).where(where)).toEqual([])
})
