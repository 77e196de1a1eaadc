import * as z from 'zod'
import { FUNCTION_STATUSES } from '../../../model/tables/index.ts'
import { Name, Text } from '../../../platform/http/common-values.ts'
import { asBytes, asJson, asMultipart, asTextOrJson, bufferedBody, jsonPart } from '../../kernel/body.ts'
import { normalizeSourcePath } from './source-files.ts'

/** The maximum size of a deployment form, which is in memory while it is bundled. */
export const SOURCE_BYTES_MAX = 10 * 1024 ** 2
const FILES_MAX = 1_000
const PATTERNS_MAX = 100
const SLUG_LENGTH_MAX = 128

export const Slug = z
  .string()
  .max(SLUG_LENGTH_MAX)
  .regex(/^[A-Za-z][A-Za-z0-9_-]*$/, 'must start with a letter and contain only letters, digits, _ and -')

/** Slugs from older clients may also start with a digit, `_` or `-`. */
export const AnySlug = z
  .string()
  .max(SLUG_LENGTH_MAX)
  .regex(/^[A-Za-z0-9_-]+$/, 'must contain only letters, digits, _ and -')

const Sha256 = z.string().regex(/^[0-9a-f]{64}$/, 'must be 64 hexadecimal digits')

/** The path of a source file; undefined if empty, as clients send an empty path instead of none. Its URL in replies may be longer. */
const Path = Text.transform((path, check) => {
  if (path === '') return undefined
  const found = normalizeSourcePath(path)
  if (found === undefined) check.addIssue('must be the path of a file within the source')
  return found
}).pipe(z.string().max(1_024).optional())

interface Part {
  name: string
  bytes(): Promise<Uint8Array<ArrayBuffer>>
}
const isPart = (part: unknown): part is Part => part instanceof File
const FilePart = z
  .custom<Part>(isPart, 'must be sent as a file, with its path as filename')
  .meta({ type: 'string', format: 'binary' })
  .transform((file, check) => {
    const path = normalizeSourcePath(file.name)
    if (path === undefined) check.addIssue('must have the path of a file within the source as its filename')
    return { path: path ?? '', file }
  })

const Metadata = z.object({
  entrypoint_path: Path,
  import_map_path: Path.optional(),
  static_patterns: z.array(Text.min(1).max(1_024)).max(PATTERNS_MAX).optional(),
  verify_jwt: z.boolean().optional(),
  name: Name.optional(),
})

const DeployForm = z
  .object({ file: z.array(FilePart).min(1).max(FILES_MAX), metadata: jsonPart(Metadata) })
  .check((c) => {
    const { file: files, metadata } = c.value
    const paths = new Set(files.map(({ path }) => path))
    const { entrypoint_path: entrypoint, import_map_path: importMap } = metadata
    if (entrypoint === undefined || !paths.has(entrypoint)) addIssue(['metadata', 'entrypoint_path'], FILE_MISSING)
    if (importMap !== undefined && !paths.has(importMap)) addIssue(['metadata', 'import_map_path'], FILE_MISSING)

    function addIssue(path: PropertyKey[], message: string): void {
      c.issues.push({ code: 'custom', path, message, input: c.value })
    }
  })
const FILE_MISSING = 'must be the path of one of the files'

export const DeployBody = bufferedBody(
  { 'multipart/form-data': asMultipart(DeployForm) },
  { sizeBytesMax: SOURCE_BYTES_MAX },
)
export type Deploy = z.output<typeof DeployForm>

export const DeployQuery = z.object({
  slug: Slug.optional(),
  bundleOnly: z.stringbool().optional().meta({ description: 'Only bundle the function; a bulk update activates it' }),
})
export type DeployOptions = z.output<typeof DeployQuery>

const FunctionFields = z.object({
  name: Name.optional(),
  body: Text.min(1).optional().meta({ description: 'TypeScript or JavaScript' }),
  verify_jwt: z.boolean().optional(),
})
const CreateFunction = FunctionFields.extend({ slug: Slug, name: Name, body: Text.min(1) }).meta({
  id: 'CreateFunction',
})
const UpdateFunction = FunctionFields.meta({ id: 'UpdateFunction' })

/** Content types of a single-file source. */
const SOURCE_TYPES = {
  'application/vnd.denoland.eszip': asBytes,
  'application/octet-stream': asBytes,
  'application/typescript': asBytes,
  'application/javascript': asBytes,
  'text/plain': asBytes,
  'text/typescript': asBytes,
  'text/javascript': asBytes,
}
const sizeBytesMax = SOURCE_BYTES_MAX
/** management-js sends its JSON as text/plain. */
const functionBody = <S extends z.ZodType>(schema: S) => ({
  'application/json': asJson(schema),
  ...SOURCE_TYPES,
  'text/plain': asTextOrJson(asJson(schema)),
})
export const CreateBody = bufferedBody(functionBody(CreateFunction), { sizeBytesMax })
export const UpdateBody = bufferedBody(functionBody(UpdateFunction), { sizeBytesMax, optional: true })
export type Write = z.output<typeof UpdateFunction> & { slug?: string }

export const WriteQuery = z.object({
  slug: AnySlug.optional(),
  name: Name.optional(),
  verify_jwt: z.stringbool().optional(),
  import_map: z.stringbool().optional(),
  entrypoint_path: Path.optional(),
  import_map_path: Path.optional(),
  ezbr_sha256: Text.optional().meta({ description: 'Ignored: the digest is computed' }),
})
export type WriteOptions = z.output<typeof WriteQuery>

const BULK_MAX = 1_000
/** Leaves room for later deploys, each of which increments the version. */
const VERSION_MAX = 1_000_000_000
/** The end of the year 9999. */
const LAST_MS = 253_402_300_799_999

const BulkFunction = z.object({
  id: z.string().meta({ description: 'The id of the bundle or of the function; any other id is ignored' }),
  slug: Slug,
  name: Name,
  status: z.enum(FUNCTION_STATUSES),
  version: z.int().min(1).max(VERSION_MAX),
  created_at: z
    .int()
    .min(0)
    .max(LAST_MS)
    .optional()
    .meta({ description: 'Creation time of a new function in milliseconds since 1970; ignored for an existing one' }),
  verify_jwt: z.boolean().optional(),
  import_map: z.boolean().optional(),
  entrypoint_path: Text.optional(),
  import_map_path: Text.optional(),
  ezbr_sha256: Sha256.optional().meta({
    description:
      'The digest of the bundle to activate. Default: the latest bundle for a higher version, or the current deployment',
  }),
})
export type BulkFunction = z.output<typeof BulkFunction>

export const BulkUpdate = z
  .array(BulkFunction)
  .max(BULK_MAX)
  .refine((list) => new Set(list.map(({ slug }) => slug)).size === list.length, 'must not contain a slug twice')

export const EdgeFunction = z
  .object({
    id: z.uuid(),
    slug: z.string(),
    name: z.string(),
    status: z.enum(FUNCTION_STATUSES),
    version: z.int(),
    created_at: z.int().meta({ description: 'Milliseconds since 1970' }),
    updated_at: z.int().meta({ description: 'Milliseconds since 1970' }),
    verify_jwt: z.boolean(),
    import_map: z.boolean(),
    entrypoint_path: z.string(),
    import_map_path: z.string().optional(),
    ezbr_sha256: z.string(),
  })
  .meta({ id: 'EdgeFunction' })

export const BulkReply = z.object({ functions: z.array(EdgeFunction) })

export const FunctionBody = z
  .object({
    metadata: z.object({ deno2_entrypoint_path: z.string() }),
    file: z
      .array(z.string().meta({ format: 'binary' }))
      .meta({ description: 'The files, each with its path as filename' }),
  })
  .meta({ id: 'FunctionBody' })
