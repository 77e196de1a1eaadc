import { and, eq } from 'drizzle-orm'
import type * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { customHostnames, vanitySubdomains } from '../../../model/tables/index.ts'
import { uniqueViolation } from '../../../platform/db/postgres-errors.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { forgetHost } from '../../../services/gateway/hostnames.ts'
import { changeProject } from '../../kernel/change-project.ts'
import { problemOf } from './domain-names.ts'
import { isQuarantined, releaseSubdomain } from './quarantine.ts'
import type { VanitySubdomainConfig } from './schema.ts'

type Config = Ctx['config']

const UNIQUE_SUBDOMAIN = 'vanity_subdomains_once'

export async function getVanity(
  { db, config }: Ctx,
  { ref }: ProjectAccess,
): Promise<z.input<typeof VanitySubdomainConfig>> {
  const [vanity] = await db.select().from(vanitySubdomains).where(eq(vanitySubdomains.projectRef, ref))
  if (vanity && config.PROJECT_DOMAIN) {
    return { status: 'active', custom_domain: `${vanity.subdomain}.${config.PROJECT_DOMAIN}` }
  }
  const [custom] = await db
    .select({ hostname: customHostnames.hostname })
    .from(customHostnames)
    .where(and(eq(customHostnames.projectRef, ref), eq(customHostnames.status, '5_services_reconfigured')))
  return custom ? { status: 'custom-domain-used', custom_domain: custom.hostname } : { status: 'not-used' }
}

/** Checks availability. Without a project domain no name is available; activation reports the reason. */
export async function checkVanity(ctx: Ctx, { ref }: ProjectAccess, subdomain: string) {
  const { db, config } = ctx
  const { PROJECT_DOMAIN: domain } = config
  if (!domain || problem(config, subdomain, `${subdomain}.${domain}`)) return { available: false }
  const taken = await db
    .select({ ref: vanitySubdomains.projectRef })
    .from(vanitySubdomains)
    .where(eq(vanitySubdomains.subdomain, subdomain))
  return { available: taken.length === 0 && !(await isQuarantined(db, { subdomain, ref }, ctx.now())) }
}

export async function activateVanity(ctx: Ctx, project: ProjectAccess, subdomain: string) {
  const { ref } = project
  const host = hostOf(ctx.config, subdomain)
  const reserved = problem(ctx.config, subdomain, host)
  if (reserved) throw invalidSubdomain(reserved)
  const before = await changeProject(ctx, project, async ({ tx, record }) => {
    const [current] = await tx.select().from(vanitySubdomains).where(eq(vanitySubdomains.projectRef, ref))
    if (current?.subdomain === subdomain) return subdomain
    await releaseSubdomain(tx, ref, ctx.now())
    const values = { subdomain, createdAt: ctx.now() }
    await tx
      .insert(vanitySubdomains)
      .values({ projectRef: ref, ...values })
      .onConflictDoUpdate({ target: vanitySubdomains.projectRef, set: values })
    // Checked after the write, so that a concurrent release is visible.
    if (await isQuarantined(tx, { subdomain, ref }, ctx.now())) throw invalidSubdomain(`${subdomain} is taken`)
    await record('vanity_subdomain.activate', { subdomain, ...(current && { before: current.subdomain }) })
    return current?.subdomain
  }).catch((error: unknown) => {
    if (uniqueViolation(error) === UNIQUE_SUBDOMAIN) throw invalidSubdomain(`${subdomain} is taken`)
    throw error
  })
  for (const name of [before, subdomain]) if (name) forgetHost(name)
  return { custom_domain: host }
}

export async function deleteVanity(ctx: Ctx, project: ProjectAccess): Promise<void> {
  const { ref } = project
  const deleted = await changeProject(ctx, project, async ({ tx, record }) => {
    await releaseSubdomain(tx, ref, ctx.now())
    const [row] = await tx.delete(vanitySubdomains).where(eq(vanitySubdomains.projectRef, ref)).returning()
    if (row) await record('vanity_subdomain.delete', { subdomain: row.subdomain })
    return row
  })
  if (deleted) forgetHost(deleted.subdomain)
}

function hostOf({ PROJECT_DOMAIN: domain }: Config, subdomain: string): string {
  if (!domain) throw invalidSubdomain('this installation has no PROJECT_DOMAIN, so its projects have no hosts')
  return `${subdomain}.${domain}`
}

const problem = ({ BASE_URL }: Config, subdomain: string, host: string) =>
  problemOf(subdomain, { host, ownHost: new URL(BASE_URL).hostname })

const invalidSubdomain = (detail: string) => new ApiError('bad_request.vanity_subdomain', { detail })
