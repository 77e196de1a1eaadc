import { asc, eq } from 'drizzle-orm'
import { hashToken } from '../../src/access/token.ts'
import { newClientSecret } from '../../src/management/account/oauth/apps.ts'
import { redirectUriError } from '../../src/management/account/oauth/redirect-uri.ts'
import { BASIC_GRANT_TYPES, CLIENT_NAME_LENGTH_MAX } from '../../src/management/account/oauth/schema.ts'
import { type GrantType, oauthApps } from '../../src/model/tables/index.ts'
import type { ControlDb } from '../seed.ts'
import { StartError } from '../start-error.ts'
import { change, type Transaction } from './change.ts'
import type { Command } from './command.ts'
import { findOrganization } from './find.ts'
import { readScopes } from './identities.ts'

export const oauthAppCommands: Record<string, Command> = {
  'oauth-apps create': {
    summary: 'Register an OAuth application.',
    args: ['slug', 'name'],
    options: '--redirect-uris a,b --scopes a,b [--public] [--implicit]',
    run: (db, [slug = '', name = ''], { 'redirect-uris': uris, scopes, public: isPublic = false, implicit }) => {
      if (uris === undefined)
        throw new StartError('--redirect-uris is missing: the addresses to which the application sends users back')
      if (scopes === undefined) throw new StartError('--scopes is missing: all scopes that the application may request')
      const unique = Array.from(new Set(readScopes(scopes)))
      const grantTypes: GrantType[] = [...BASIC_GRANT_TYPES, ...(implicit ? (['implicit'] as const) : [])]
      return createApp(db, { slug, name, redirectUris: readUris(uris), scopes: unique, grantTypes, isPublic })
    },
  },
  'oauth-apps list': {
    summary: 'List the OAuth applications of an organization.',
    args: ['slug'],
    run: async (db, [slug = '']) => {
      const { id } = await findOrganization(db, slug)
      const where = eq(oauthApps.organizationId, id)
      const rows = await db.select().from(oauthApps).where(where).orderBy(asc(oauthApps.createdAt), asc(oauthApps.id))
      return rows.map(appLine).join('\n') || 'no applications'
    },
  },
  'oauth-apps rotate': {
    summary: "Replace an application's client secret.",
    args: ['client id'],
    run: (db, [id = '']) => rotateSecret(db, id),
  },
  'oauth-apps delete': {
    summary: 'Delete an application and its tokens.',
    args: ['client id'],
    run: (db, [id = '']) => deleteApp(db, id),
  },
}

interface NewApp {
  slug: string
  name: string
  redirectUris: string[]
  scopes: ReturnType<typeof readScopes>
  grantTypes: GrantType[]
  isPublic: boolean
}

function createApp(db: ControlDb, { slug, name, isPublic, ...fields }: NewApp): Promise<string> {
  if (!/\S/.test(name) || name.length > CLIENT_NAME_LENGTH_MAX)
    throw new StartError(`the name must have 1 to ${CLIENT_NAME_LENGTH_MAX} characters`)
  const secret = isPublic ? undefined : newClientSecret()
  return change(db, async ({ tx, trace }) => {
    const { id: organizationId } = await findOrganization(tx, slug)
    const secretHash = secret === undefined ? null : await hashToken(secret)
    const values = { organizationId, name, ...fields, secretHash }
    const [app] = await tx.insert(oauthApps).values(values).returning()
    if (!app) throw new Error('the application was not inserted')
    await trace({ action: 'oauth_app.create', organizationId, detail: { app: app.id, name, ...fields } })
    return [`client_id ${app.id}`, ...(secret === undefined ? [] : [`client_secret ${secret}`])].join('\n')
  })
}

/** Replaces the client secret; tokens that were issued before stay valid. */
function rotateSecret(db: ControlDb, id: string): Promise<string> {
  const secret = newClientSecret()
  return change(db, async ({ tx, trace }) => {
    const { secretHash, organizationId } = await lockApp(tx, id)
    if (secretHash === null) throw new StartError('the application is public: it has no secret')
    await tx
      .update(oauthApps)
      .set({ secretHash: await hashToken(secret) })
      .where(eq(oauthApps.id, id))
    await trace({ action: 'oauth_app.rotate', organizationId, detail: { app: id } })
    return `client_secret ${secret}`
  })
}

function deleteApp(db: ControlDb, id: string): Promise<string> {
  return change(db, async ({ tx, trace }) => {
    const { name, organizationId } = await lockApp(tx, id)
    await tx.delete(oauthApps).where(eq(oauthApps.id, id))
    await trace({ action: 'oauth_app.delete', organizationId, detail: { app: id, name } })
    return `${name} is deleted; the API refuses its tokens within ten seconds`
  })
}

async function lockApp(tx: Transaction, id: string) {
  const isId = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(id)
  const [app] = isId ? await tx.select().from(oauthApps).where(eq(oauthApps.id, id)).for('update') : []
  if (!app) throw new StartError(`no application has the client id "${id}"`)
  return app
}

function readUris(text: string): string[] {
  return text.split(',').map((sent) => {
    const uri = sent.trim()
    const problem = redirectUriError(uri)
    if (problem) throw new StartError(`--redirect-uris: "${uri}" ${problem}`)
    return uri
  })
}

const appLine = ({ id, name, secretHash, scopes, redirectUris }: typeof oauthApps.$inferSelect) =>
  `${id}  ${secretHash === null ? 'public' : 'secret'}  ${name}  ${scopes.join(',')}  ${redirectUris.join(',')}`
