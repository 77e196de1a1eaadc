import { sql } from 'drizzle-orm'
import type { SystemCtx } from '../../ctx.ts'
import { runnerPasswordOf } from '../../model/secrets/project.ts'
import type { ProjectStatus, StorageConfig } from '../../model/tables/index.ts'
import { rowsOf } from '../../platform/db/client.ts'
import { createRowCache, type Reader, type RowKey, wantedProjects } from '../../platform/db/row-cache.ts'
import { type DataApiConfig, dataApiConfigOf } from './data-api-config.ts'
import { openTrust, type SealedTrust, sealedTrust, TRUST, TRUST_CHARACTERS_MAX, type Trust } from './trust.ts'
import { type UrlSigner, urlSignerOf } from './url-signer.ts'

/** A project with its secrets decrypted, as its own services use it for every caller. */
export interface OpenedProject {
  ref: string
  organizationId: string
  status: ProjectStatus
  trust: Trust
  urls: UrlSigner
  runnerPassword: string
  storage: StorageConfig
  dataApi: DataApiConfig
}

export const STORAGE_DEFAULTS: StorageConfig = { fileSizeLimit: 50 * 1024 * 1024 }

export const storageConfigOf = ({ storageConfig }: { storageConfig: Partial<StorageConfig> }): StorageConfig => ({
  fileSizeLimit: storageConfig.fileSizeLimit ?? STORAGE_DEFAULTS.fileSizeLimit,
})

interface Row extends RowKey {
  organizationId: string
  status: ProjectStatus
  storageConfig: Partial<StorageConfig>
  sealedRunnerPassword: string
  dataApiConfig: Parameters<typeof dataApiConfigOf>[0]
  trust: SealedTrust
  /** Set by the first request to the project. */
  opened?: OpenedProject
}

const projects = createRowCache<Row>({
  read,
  charactersOf: ({ trust }) => trust.text.length,
  entriesMax: 1_000,
  charactersMax: TRUST_CHARACTERS_MAX,
})

/** Undefined if the project does not exist or was removed. */
export async function openProject(ctx: SystemCtx, ref: string): Promise<OpenedProject | undefined> {
  const row = await projects.get(() => ctx, { ref, name: '' }, ctx.now().getTime())
  return row && openOnce(ctx, row)
}

/** Bypasses the cache, for a caller that found the cached project to be out of date. */
export async function reloadProject(ctx: SystemCtx, ref: string): Promise<OpenedProject | undefined> {
  const row = await projects.reload(ctx, { ref, name: '' }, ctx.now().getTime())
  return row && openOnce(ctx, row)
}

/** Called after the project changed: this isolate uses the change at once. */
export const forgetProject = (ref: string): void => projects.invalidate(ref)

async function read({ db }: Reader, wanted: readonly RowKey[]): Promise<Row[]> {
  const rows = await rowsOf<Row & { trust: string }>(
    db,
    sql`select p.ref, w.name, p.organization_id as "organizationId", p.status, p.storage_config as "storageConfig",
        p.sealed_runner_password as "sealedRunnerPassword", ${TRUST} as trust, (
          select s.value from project_settings s where s.project_ref = p.ref and s.area = 'postgrest') as "dataApiConfig"
      from ${wantedProjects(wanted)}`,
  )
  return rows.map((row) => ({ ...row, trust: sealedTrust(row.ref, row.trust) }))
}

async function openOnce(ctx: SystemCtx, row: Row): Promise<OpenedProject> {
  row.opened ??= await open(ctx, row)
  return row.opened
}

async function open(ctx: SystemCtx, row: Row): Promise<OpenedProject> {
  const { ref, organizationId, status } = row
  const trust = await openTrust(ctx, row.trust)
  const { runnerPassword, urls } = await openSecrets(ctx, row, trust)
  const dataApi = dataApiConfigOf(row.dataApiConfig)
  return { ref, organizationId, status, trust, urls, runnerPassword, storage: storageConfigOf(row), dataApi }
}

interface Secrets {
  sealed: string
  runnerPassword: string
  urls: UrlSigner
}

/** Opened secrets by the project's Trust, which is the same object while its keys are unchanged. To open them costs more than the rest of a request. */
const secrets = new WeakMap<Trust, Secrets>()

async function openSecrets(ctx: SystemCtx, row: Row, trust: Trust): Promise<Secrets> {
  const sealed = row.sealedRunnerPassword
  const known = secrets.get(trust)
  if (known?.sealed === sealed) return known
  const runnerPassword = await runnerPasswordOf(ctx, row)
  const opened = { sealed, runnerPassword, urls: urlSignerOf(trust, runnerPassword) }
  secrets.set(trust, opened)
  return opened
}
