import { randomUUID } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { asc, eq } from 'drizzle-orm'
import { expect, vi } from 'vitest'
import { openControlDatabase, seedOwner } from '../../dev/seed.ts'
import { startServices } from '../../dev/services.ts'
import {
  auditLog,
  memberRoles,
  organizations,
  privateLinkAssociations,
  projects,
} from '../../src/model/tables/index.ts'
import { randomLetters } from '../../src/platform/http/common-values.ts'
import { as } from './api.ts'
import { SIGNER, startRamServer } from './ram-server.ts'
import { serveInstallation } from './serve.ts'
import { WAIT_MS } from './wait.ts'

const arnOf = (id: string) => `arn:aws:vpc-lattice:${SIGNER.region}:111122223333:resourceconfiguration/rcfg-${id}`
export const CLUSTER = arnOf('0123456789abcdef0')
export const OF_REPLICA = arnOf('0fedcba9876543210')
export const OF_OTHER_HOST = arnOf('00112233445566778')
export const ON_OTHER_HOST = 'projectontheotherone'
export const WITH_REPLICA = 'replicatedreplicated'
export const REPLICA = `${WITH_REPLICA}-rr-us-east-1-abcde`
export const WAIT = { timeout: WAIT_MS, interval: 100 }

export const randomAccount = () => String(Math.floor(Math.random() * 1e12)).padStart(12, '9')

/** Starts an installation that shares its databases, with an AWS server of its own. */
export async function startSharingInstallation() {
  const folder = mkdtempSync(join(tmpdir(), 'pilothouse-private-link-'))
  const baseUrl = 'https://api.example.com'
  const [ram, services] = await Promise.all([startRamServer(), startServices({ folder, baseUrl, durable: false })])
  const bindings = {
    vars: {
      ...services.vars,
      PRIVATE_LINK_RESOURCE_CONFIGURATIONS: `${CLUSTER}, ${REPLICA}=${OF_REPLICA}, ${ON_OTHER_HOST}=${OF_OTHER_HOST}`,
      PRIVATE_LINK_RAM_URL: ram.url,
    },
    secrets: {
      ...services.secrets,
      PRIVATE_LINK_AWS_ACCESS_KEY_ID: SIGNER.accessKeyId,
      PRIVATE_LINK_AWS_SECRET_ACCESS_KEY: SIGNER.secretAccessKey,
    },
  }
  const worker = await serveInstallation(bindings, folder)
  const { db, close } = openControlDatabase(services.controlUrl)

  async function newOrganization() {
    const slug = `org-${randomUUID()}`
    const organization = { slug, name: 'Test' }
    const { access_token } = await seedOwner(
      { controlUrl: services.controlUrl },
      { username: slug, email: `${slug}@example.com`, organization, plan: 'team' },
    )
    const [row] = await db
      .select({ id: organizations.id, userId: memberRoles.userId })
      .from(memberRoles)
      .innerJoin(organizations, eq(organizations.id, memberRoles.organizationId))
      .where(eq(organizations.slug, slug))
    if (!row) throw new Error('no organization')
    return { ...row, slug, owner: as(access_token, {}, worker.origin) }
  }

  /** Inserts only the row of a project: these tests never use its database. */
  async function newPlace(
    { ref = randomLetters(), ...fields }: Partial<typeof projects.$inferInsert> = {},
    within?: Awaited<ReturnType<typeof newOrganization>>,
  ) {
    const place = within ?? (await newOrganization())
    await db.insert(projects).values({
      ...{ ref, organizationId: place.id, name: ref, region: 'us-east-1', instanceSize: 'nano' },
      ...{ status: 'ACTIVE_HEALTHY', sealedPassword: '', sealedRunnerPassword: '', ...fields },
    })
    const { owner } = place
    const path = `/v2/projects/${ref}/private-link/associations`
    const rows = () =>
      db
        .select()
        .from(privateLinkAssociations)
        .where(eq(privateLinkAssociations.projectRef, ref))
        .orderBy(asc(privateLinkAssociations.createdAt), asc(privateLinkAssociations.id))
    const statuses = async () => (await rows()).map(({ status }) => status)
    const until = (...expected: string[]) => vi.waitFor(async () => expect(await statuses()).toEqual(expected), WAIT)
    const change = (fields: Partial<typeof privateLinkAssociations.$inferInsert>) =>
      db.update(privateLinkAssociations).set(fields).where(eq(privateLinkAssociations.projectRef, ref))
    const share = (account: string, fields: Record<string, unknown> = {}) =>
      owner.post(path, {
        data: { type: 'private_link_association', attributes: { aws_account_id: account, ...fields } },
      })
    return {
      ...place,
      ref,
      path,
      rows,
      until,
      share,
      list: async () => (await owner.get(path)).body.data,
      remove: (account: string, database?: string) =>
        owner.delete(`${path}/aws-account/${account}${database ? `/database/${database}` : ''}`),
      /** Makes an account whose invitation is under way. */
      async invite() {
        const account = randomAccount()
        expect(await share(account)).toMatchObject({ status: 201 })
        await until('READY')
        return { account, share: onlyShareWith(account) }
      },
      change,
      /** Makes the check of the share due, and runs it. */
      async runCheck() {
        await change({ dueAt: new Date(0), leaseUntil: null })
        await worker.tick()
      },
      async auditActions() {
        const found = await db.select().from(auditLog).where(eq(auditLog.projectRef, ref)).orderBy(auditLog.createdAt)
        return found.map(({ action }) => action)
      },
    }
  }

  function onlyShareWith(account: string) {
    const [share, ...others] = ram.sharesWith(account)
    if (!share || others.length > 0) throw new Error(`${others.length + 1} shares with ${account}`)
    return share
  }

  return {
    ram,
    db,
    controlUrl: services.controlUrl,
    tick: () => worker.tick(),
    newOrganization,
    newPlace,
    onlyShareWith,
    /** Starts another Worker on the same database. */
    serveAtNeon: () =>
      serveInstallation(
        {
          vars: { ...bindings.vars, ENGINE: 'neon' },
          secrets: { ...bindings.secrets, NEON_API_KEY: 'any' },
        },
        join(folder, 'neon'),
      ),
    async stop() {
      await close()
      await worker.stop()
      await services.stop()
      await ram.stop()
      rmSync(folder, { recursive: true, force: true })
    },
  }
}
