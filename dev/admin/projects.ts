import { and, eq, isNull } from 'drizzle-orm'
import { beginTransition } from '../../src/management/projects/projects/transition.ts'
import { organizations, projects } from '../../src/model/tables/index.ts'
import { confirm } from '../confirm.ts'
import type { ControlDb } from '../seed.ts'
import { change, type Transaction } from './change.ts'
import type { Command } from './command.ts'
import { unknownProject } from './find.ts'

export const projectCommands: Record<string, Command> = {
  'project pause': {
    summary: 'Pause a project.',
    args: ['ref'],
    run: async (db, [ref = '']) => {
      await beginChange(db, ref, 'pause')
      return `${ref} is pausing; the API begins within a minute`
    },
  },
  'project delete': {
    summary: 'Delete a project with its branches, after confirmation.',
    args: ['ref'],
    options: '[--yes]',
    run: async (db, [ref = ''], { yes = false }) => {
      const { name } = await findByRef(db, ref)
      const what = `deletes the project ${name} with its branches, database, files and backups`
      await confirm({ what, command: `project delete ${ref}`, isConfirmed: yes })
      await beginChange(db, ref, 'delete')
      return `${ref} is going down; the API begins within a minute`
    },
  },
}

/** Creates the task, which the API's cron starts. */
const beginChange = (db: ControlDb, ref: string, kind: 'pause' | 'delete'): Promise<void> =>
  change(db, async (mutation) => {
    const project = await findByRef(mutation.tx, ref)
    await beginTransition({ now: () => new Date(), actor: { kind: 'system' } }, mutation, project, kind)
  })

export async function findByRef(db: Pick<ControlDb, 'select'> | Transaction, ref: string) {
  const [project] = await db
    .select({
      ref: projects.ref,
      name: projects.name,
      parentRef: projects.parentRef,
      organizationId: organizations.id,
      organizationSlug: organizations.slug,
    })
    .from(projects)
    .innerJoin(organizations, eq(organizations.id, projects.organizationId))
    .where(and(eq(projects.ref, ref), isNull(projects.removedAt)))
  if (!project) return unknownProject(ref)
  return project
}
