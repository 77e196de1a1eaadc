import { and, eq, isNull } from 'drizzle-orm'
import {
  accessTokens,
  assertionIssuers,
  invitations,
  memberRoles,
  oauthApps,
  organizations,
  projects,
  webhookEndpoints,
} from '../../src/model/tables/index.ts'
import { confirm } from '../confirm.ts'
import type { ControlDb } from '../seed.ts'
import { StartError } from '../start-error.ts'
import { change } from './change.ts'
import type { Command } from './command.ts'
import { findOrganization, lockOrganization } from './find.ts'

export const organizationRemovalCommands: Record<string, Command> = {
  'organization delete': {
    summary: 'Delete an organization that has no projects, after confirmation.',
    args: ['slug'],
    options: '[--yes]',
    run: async (db, [slug = ''], { yes = false }) => {
      const { name } = await findOrganization(db, slug)
      const what = `deletes the organization ${name} with its members, applications and webhooks`
      await confirm({ what, command: `organization delete ${slug}`, isConfirmed: yes })
      return deleteOrganization(db, slug)
    },
  },
}

const TABLES = [memberRoles, invitations, oauthApps, accessTokens, assertionIssuers, webhookEndpoints]

/** Keeps the row, without members, so that its slug and the refs of its deleted projects are never reused. */
const deleteOrganization = (db: ControlDb, slug: string): Promise<string> =>
  change(db, async ({ tx, trace }) => {
    const { id } = await lockOrganization(tx, slug)
    const left = await tx
      .select({ ref: projects.ref })
      .from(projects)
      .where(and(eq(projects.organizationId, id), isNull(projects.removedAt)))
    if (left.length > 0) {
      const refs = left.map(({ ref }) => ref).join(', ')
      throw new StartError(`${slug} has projects: delete them first with \`project delete\` (${refs})`)
    }
    for (const table of TABLES) await tx.delete(table).where(eq(table.organizationId, id))
    await tx.update(organizations).set({ removedAt: new Date() }).where(eq(organizations.id, id))
    await trace({ action: 'organization.delete', organizationId: id })
    return `${slug} is deleted; the API refuses its members within ten seconds`
  })
