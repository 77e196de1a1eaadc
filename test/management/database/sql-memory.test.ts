import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { spawnedBy } from '../../../dev/child-process.ts'
import { serveLikeStart } from '../../support/serve.ts'
import { type Installation, startInstallation } from '../../support/storage-installation.ts'

const MIB = 1024 ** 2
const QUERIES = 30
const ROW_BYTES = 15_000_000

let installation: Installation
let pids: number[] = []
beforeAll(async () => {
  installation = await startInstallation({
    serve: async (bindings, folder) => {
      const { result, children } = await spawnedBy(() => serveLikeStart(bindings, folder))
      pids = children.flatMap(({ pid }) => pid ?? [])
      return result
    },
  })
})
afterAll(() => installation.stop())

/**
 * Returns the highest memory use of all processes of the Worker together; the host's budget has a test of its own.
 */
const peakBytes = (): number =>
  pids
    .map((pid) => Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) * 1024)
    .reduce((sum, bytes) => sum + bytes, 0)

it.runIf(process.platform === 'linux')('30 results of 15 MB at once stay within a bounded memory', async () => {
  const { owner, ...organization } = await installation.newOrganization()
  const projects: string[] = []
  for (let n = 0; n < 3; n += 1) projects.push((await installation.newStorage({ owner, ...organization })).ref)
  const ask = async (ref: string, query: string) => {
    const reply = await owner.post(`/v1/projects/${ref}/database/query`, { query })
    return { status: reply.status, retryAfter: reply.headers.get('retry-after'), body: reply.body }
  }
  for (const ref of projects) expect((await ask(ref, 'select 1 as one')).body).toEqual([{ one: 1 }])
  const before = peakBytes()
  const replies = await Promise.all(
    Array.from({ length: QUERIES }, async (_, n) => {
      const { status, retryAfter, body } = await ask(projects[n % 3] ?? '', `select repeat('z', ${ROW_BYTES}) as z`)
      return { status, retryAfter, length: body[0]?.z?.length }
    }),
  )
  const grownMiB = (peakBytes() - before) / MIB
  console.log(`grown by ${grownMiB.toFixed(0)} MiB; ${replies.filter(({ status }) => status === 201).length} answered`)
  const answered = replies.filter(({ status }) => status === 201)
  expect(answered.length).toBeGreaterThanOrEqual(4)
  expect(new Set(answered.map(({ length }) => length))).toEqual(new Set([ROW_BYTES]))
  for (const refused of replies.filter(({ status }) => status !== 201)) {
    expect(refused).toMatchObject({ status: 503, retryAfter: '1' })
  }
  expect(grownMiB).toBeLessThan(512)
  expect(await ask(projects[0] ?? '', 'select 2 as two')).toMatchObject({ status: 201, body: [{ two: 2 }] })
})
