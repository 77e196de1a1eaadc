import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { randomAccount, startSharingInstallation, WAIT } from '../../support/private-link.ts'

let installation: Awaited<ReturnType<typeof startSharingInstallation>>
beforeAll(async () => {
  installation = await startSharingInstallation()
})
afterAll(() => installation.stop())

describe('if a request to AWS fails', () => {
  it.each([
    ['was lost', { status: 0 }],
    ['was carried out, and its answer lost', { status: 0, after: true }],
    ['met a fault', { status: 503, code: 'ServiceUnavailableException' }],
    ['was one too many', { status: 429, code: 'ThrottlingException' }],
  ])('one share is made, although the request for it %s', async (_, fault) => {
    const place = await installation.newPlace()
    const account = randomAccount()
    installation.ram.fault({ path: '/createresourceshare', about: account, ...fault })
    await place.share(account)
    await place.until('READY')
    expect(installation.onlyShareWith(account).arn).toBe((await place.rows())[0]?.shareArn)
  })

  it('a share that was made before a crash is found again', async () => {
    const place = await installation.newPlace()
    const { share } = await place.invite()
    const died = { claim: randomUUID(), leaseUntil: new Date(0), dueAt: new Date(0) }
    await place.change({ status: 'CREATING', shareArn: null, ...died })
    const before = installation.ram.calls.filter((path) => path === '/createresourceshare').length
    await installation.tick()
    await place.until('READY')
    expect((await place.rows())[0]?.shareArn).toBe(share.arn)
    expect(installation.ram.calls.filter((path) => path === '/createresourceshare')).toHaveLength(before)
  })

  it('a share that was made before a crash is deleted', async () => {
    const place = await installation.newPlace()
    const { account, share } = await place.invite()
    await place.change({ shareArn: null })
    await place.remove(account)
    await place.until()
    expect(share.status).toBe('DELETED')
  })

  it.each([true, false])('a share is deleted even if AWS reports it late (with its ARN known: %s)', async (known) => {
    const place = await installation.newPlace()
    const { account, share } = await place.invite()
    installation.ram.hidden.add(share.arn)
    if (!known) await place.change({ shareArn: null })
    await place.remove(account)
    await vi.waitFor(async () => expect((await place.rows())[0]?.attempts).toBeGreaterThan(0), WAIT)
    await place.until('DELETING')
    installation.ram.hidden.delete(share.arn)
    await place.runCheck()
    await place.until()
    expect(share.status).toBe('DELETED')
  })

  it('a consumer that lost its lease records nothing', async () => {
    const place = await installation.newPlace()
    const account = randomAccount()
    const answer = Promise.withResolvers<void>()
    installation.ram.fault({
      path: '/createresourceshare',
      about: account,
      status: 400,
      code: 'InvalidParameterException',
      until: answer.promise,
    })
    await place.share(account)
    await vi.waitFor(async () => expect((await place.rows())[0]?.shareAskedAt).not.toBeNull(), WAIT)
    await place.runCheck()
    await place.until('READY')
    answer.resolve()
    await place.runCheck()
    await place.until('READY')
    expect(installation.onlyShareWith(account).status).toBe('ACTIVE')
  })

  it('the association fails after the sixth attempt, as with a key that AWS does not know', async () => {
    const place = await installation.newPlace()
    const account = randomAccount()
    const refusal = { status: 403, code: 'UnrecognizedClientException' }
    installation.ram.fault({
      path: '/createresourceshare',
      about: account,
      times: Number.POSITIVE_INFINITY,
      ...refusal,
    })
    await place.share(account)
    await vi.waitFor(async () => expect(String((await place.rows())[0]?.lastError)).toContain(refusal.code), WAIT)
    expect((await place.rows())[0]?.status).toBe('CREATING')
    await place.change({ attempts: 5 })
    await place.runCheck()
    await place.until('CREATION_FAILED')
  })

  it('an invited account stays invited while AWS does not answer', async () => {
    const place = await installation.newPlace()
    const { share } = await place.invite()
    const times = Number.POSITIVE_INFINITY
    const mend = installation.ram.fault({ path: '/getresourceshareassociations', about: share.arn, times, status: 0 })
    const lastError = async () => String((await place.rows())[0]?.lastError)
    await place.runCheck()
    await vi.waitFor(async () => expect(await lastError()).toContain('AWS RAM did not answer'), WAIT)
    await place.until('READY')
    mend()
    await place.runCheck()
    await vi.waitFor(async () => expect(await lastError()).toBe('null'), WAIT)
    await place.until('READY')
  })
})
