import { and, eq, isNull } from 'drizzle-orm'
import { vi } from 'vitest'
import { branches, gitBranches, gitConnections } from '../../src/model/tables/index.ts'
import { control, type TestOrganization } from './api.ts'
import { connect, newRepository, type TestRepository } from './github.ts'
import { newProject } from './projects.ts'
import { WAIT_MS } from './wait.ts'

export const WAIT = { timeout: WAIT_MS, interval: 100 }

export const migration = (version: string, query: string) => ({ [`supabase/migrations/${version}_x.sql`]: query })
export const NOTES = migration('20260101000000', 'create table notes (id int primary key, text text);')
export const TAGS = migration('20260102000000', 'create table tags (id int);\ninsert into tags values (1);')
export const SEED = { 'supabase/seed.sql': "insert into notes values (1, 'seeded');" }

/** Makes a project that follows a repository. */
export async function newFollower(
  organization: TestOrganization,
  fields: Parameters<typeof connect>[3] = {},
  repository?: TestRepository,
) {
  const followed = repository ?? (await newRepository())
  const ref = await newProject(organization)
  await connect(organization, ref, followed, fields)
  return { ref, repository: followed }
}

export async function branchOf(parentRef: string, gitBranch: string) {
  const which = and(eq(branches.parentRef, parentRef), eq(branches.gitBranch, gitBranch), isNull(branches.removedAt))
  return (await control.select().from(branches).where(which))[0]
}

/** Waits until no event of GitHub is left to be handled. */
export const untilQuiet = (projectRef: string) =>
  vi.waitFor(async () => {
    const due = await control
      .select({ name: gitBranches.name, dueAt: gitBranches.dueAt, claim: gitBranches.claim })
      .from(gitBranches)
      .innerJoin(gitConnections, eq(gitConnections.id, gitBranches.connectionId))
      .where(eq(gitConnections.projectRef, projectRef))
    const busy = due.filter(({ dueAt, claim }) => dueAt !== null || claim !== null)
    if (busy.length > 0) throw new Error(JSON.stringify(busy))
  }, WAIT)
