import { PostgrestClient } from '@supabase/postgrest-js'
import { expect, it, vi } from 'vitest'
import { baseUrl, newOrganization } from '../../support/api.ts'
import { putFunction } from '../../support/functions.ts'
import { WAIT } from '../../support/machine.ts'
import { untilStatus } from '../../support/projects.ts'
import { newStorage } from '../../support/storage.ts'

it('is answered 540 by each service, and clients do not repeat their request', async () => {
  const organization = await newOrganization()
  const project = await newStorage(organization)
  const { ref, keys } = project
  const { slug } = await putFunction(project.ref, "Deno.serve(() => new Response('here'))")
  const address = (path: string) => new URL(`/p/${ref}/${path}`, baseUrl).href
  await organization.owner.post(`/v1/projects/${ref}/pause`)
  await untilStatus(organization.owner, ref, 'INACTIVE')

  const headers = { apikey: keys.service, authorization: `Bearer ${keys.service}` }
  for (const path of ['rest/v1/things', 'storage/v1/bucket', `functions/v1/${slug}`]) {
    await vi.waitFor(async () => {
      const response = await fetch(address(path), { headers })
      const { message } = (await response.json()) as { message: string }
      expect([path, response.status, message]).toEqual([path, 540, 'The project is paused'])
      expect(response.headers.get('retry-after')).toBeNull()
    }, WAIT)
  }
  const sent = vi.fn(fetch)
  const client = new PostgrestClient(address('rest/v1'), { headers, fetch: sent })
  expect(await client.from('things').select()).toMatchObject({ status: 540, error: { code: 'PGRST000' } })
  expect(sent).toHaveBeenCalledOnce()
})
