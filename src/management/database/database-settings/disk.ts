import type * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { invalidField } from '../../kernel/invalid-field.ts'
import { changeSettings } from '../../projects/settings/change-settings.ts'
import { readSettings } from '../../projects/settings/read-settings.ts'
import type { Settings } from '../../projects/settings/setting-areas.ts'
import { throwApiError } from '../database/service.ts'
import type { Disk, DiskAttributes, DiskUse } from './schema.ts'

export const GIGABYTE = 1024 ** 3

/** Disk attributes reported to clients. Projects share the disk of their host; only the size limit is per project. */
const SHARED = { type: 'gp3', iops: 3_000, throughput_mibps: 125 } as const

export const diskOf = (stored: Settings<'disk'>) => ({ ...SHARED, ...stored })

export async function getDisk({ db }: Ctx, { ref }: ProjectAccess): Promise<z.input<typeof Disk>> {
  const { value, updatedAt } = await readSettings(db, ref, 'disk')
  return { attributes: diskOf(value), ...(updatedAt && { last_modified_at: updatedAt.toISOString() }) }
}

export async function updateDisk(ctx: Ctx, project: ProjectAccess, attributes: DiskAttributes): Promise<void> {
  requireSharedAttributes(ctx, attributes)
  const { size_gb } = attributes
  const usedBytes = await usedBytesOf(ctx, project.ref)
  if (usedBytes > size_gb * GIGABYTE)
    throw invalid('size_gb', `must be at least the size of the database, ${usedBytes} bytes`)
  await changeSettings(ctx, { project, area: 'disk', work: async () => ({ size_gb }) })
}

function requireSharedAttributes({ engine }: Ctx, attributes: DiskAttributes): void {
  for (const [name, shared] of Object.entries(SHARED)) {
    const requested = name in attributes ? attributes[name as keyof DiskAttributes] : undefined
    if (requested === undefined || requested === shared) continue
    throw invalid(name, `must be ${shared}: projects of the driver ${engine.name} share the disk of their host`)
  }
}

const invalid = (attribute: string, message: string) => invalidField(`body.attributes.${attribute}`, message, 'refused')

export async function getDiskUse(ctx: Ctx, { ref }: ProjectAccess): Promise<z.input<typeof DiskUse>> {
  const [{ value }, usedBytes] = await Promise.all([readSettings(ctx.db, ref, 'disk'), usedBytesOf(ctx, ref)])
  const sizeBytes = value.size_gb * GIGABYTE
  return {
    timestamp: ctx.now().toISOString(),
    metrics: {
      fs_size_bytes: sizeBytes,
      fs_avail_bytes: Math.max(sizeBytes - usedBytes, 0),
      fs_used_bytes: usedBytes,
    },
  }
}

/** The bytes that the project's database uses. */
export async function usedBytesOf({ engine }: Ctx, ref: string): Promise<number> {
  const sizes = await engine.settings.sizesOf([ref]).catch(throwApiError)
  const bytes = sizes.get(ref)
  if (bytes === undefined) {
    throw new ApiError('service_unavailable.project_database', { detail: 'the database does not exist yet' })
  }
  return bytes
}
