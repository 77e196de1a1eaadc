import { eq } from 'drizzle-orm'
import pg from 'pg'
import type { SystemCtx } from '../src/ctx.ts'
import { openJwtSecret } from '../src/model/secrets/project.ts'
import { projects } from '../src/model/tables/index.ts'
import { type OpenedProject, openProject } from '../src/services/gateway/open-project.ts'
import type { Environment } from './environment.ts'
import { createProject, PASSWORD } from './project.ts'
import { seedOrganization, seedOwners, seedTokens } from './seed.ts'

interface ServedProject {
  ref: string
  /** Access token of the project's owner. */
  token: string
  jwtSecret: string
  /** The project as its own services see it. */
  open(): Promise<OpenedProject>
}

/** Creates a project whose services are measured. */
export async function createServedProject(environment: Environment, slug: string): Promise<ServedProject> {
  const { port, control, encryptionKey } = environment
  const organization = await seedOrganization(control, slug, 0)
  const userIds = await seedOwners(control, [organization], 1)
  const [token = ''] = await seedTokens(control, userIds, 1)
  const fields = { name: 'measured', organization_slug: organization.slug, db_pass: PASSWORD }
  const ref = await createProject(port, token, fields)
  const [row] = await control.select().from(projects).where(eq(projects.ref, ref))
  const jwtSecret = await openJwtSecret(encryptionKey, ref, row?.sealedJwtSecret ?? '')
  return {
    ...{ ref, token, jwtSecret },
    async open() {
      // The part of a context that opening a project needs.
      const config = { ENCRYPTION_KEY: encryptionKey }
      const project = await openProject({ db: control, config, now: () => new Date() } as unknown as SystemCtx, ref)
      if (!project) throw new Error(`no project ${ref}`)
      return project
    },
  }
}

export async function connectClient(config: pg.ClientConfig & { pipeline?: boolean }): Promise<pg.Client> {
  const client = new pg.Client({ ...config, pipeline: true } as pg.ClientConfig)
  await client.connect()
  return client
}
