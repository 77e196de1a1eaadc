import { beforeAll, describe, expect, it } from 'vitest'
import { newOrganization, type TestOrganization } from '../../support/api.ts'
import { newProject } from '../../support/projects.ts'
import { packed, SPEC, type Spelling, saying, TYPES, workerOf } from '../../support/workers.ts'

let organization: TestOrganization
let ref: string
beforeAll(async () => {
  organization = await newOrganization()
  ref = await newProject(organization)
})

describe.each(['workers', 'compute'] satisfies Spelling[])('a worker under /%s', (spelling) => {
  it('has a name of letters, digits and hyphens', async () => {
    const path = `/v2/projects/${ref}/${spelling}/Not_a_name`
    const { owner } = organization
    for (const reply of [await owner.get(path), await owner.delete(path), await owner.post(`${path}/uploads`)]) {
      expect([reply.status, JSON.stringify(reply.body)]).toEqual([400, expect.stringContaining('path.name')])
    }
  })

  it('is uploaded, deployed, polled to active, called, listed and deleted', async () => {
    const worker = workerOf(organization.owner, ref, { spelling })
    const slot = await organization.owner.post(`${worker.path}/uploads`)
    expect(slot).toMatchObject({
      status: 201,
      body: {
        data: {
          type: `${TYPES[spelling]}_upload`,
          id: expect.stringMatching(/^[0-9a-f-]{36}$/),
          attributes: {
            url: expect.stringContaining('X-Amz-Signature='),
            method: 'PUT',
            expires_at: expect.stringMatching(/Z$/),
          },
        },
      },
    })
    const uploadId = await worker.upload(packed(saying('hello')))
    const deployed = await worker.deploy({}, uploadId)
    expect(deployed).toMatchObject({ status: 202 })
    expect(deployed.body).toEqual({
      data: {
        type: TYPES[spelling],
        id: worker.name,
        attributes: {
          spec: SPEC,
          build_state: 'building',
          secret_generation: '0',
          instances: { declared: 1, live: 0, ready: 0, stale: 0 },
        },
      },
    })
    expect(await worker.built()).toEqual({
      spec: SPEC,
      build_state: 'active',
      secret_generation: '0',
      image_version: expect.stringMatching(/^[0-9a-f]{64}$/),
      instances: { declared: 1, live: 1, ready: 1, stale: 0 },
    })
    const answer = await worker.call('/somewhere?x=1')
    expect(answer.status).toBe(200)
    expect(await answer.text()).toBe('hello')
    const list = await organization.owner.get(`/v2/projects/${ref}/${spelling}`)
    expect(list.body.data).toContainEqual((await worker.get()).body.data)
    expect(await worker.delete()).toMatchObject({ status: 204, body: '' })
    expect((await worker.call()).status).toBe(404)
  })
})
