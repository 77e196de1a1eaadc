import { expect } from 'vitest'
import type { Lint } from '../../src/management/database/advisors/schema.ts'
import type { Caller } from './api.ts'

/** Returns the answer of POST /v2/projects/{ref}/advisors/run. */
export async function runAdvisors(caller: Caller, ref: string, ...names: string[]): Promise<Lint[]> {
  const attributes = { lints: names.map((name) => ({ name })) }
  const reply = await caller.post(`/v2/projects/${ref}/advisors/run`, {
    data: { type: 'project_advisors', attributes },
  })
  expect(reply, JSON.stringify(reply.body)).toMatchObject({ status: 200, body: { data: { type: 'project_advisors' } } })
  return reply.body.data.attributes.lints
}
