import * as z from 'zod'
import { Image } from './program-image.ts'

/**
 * Options of a function build. The files follow as parts of the form, named by their paths after `encodeURI`, because a
 * form changes quotes and line breaks in names.
 */
export const FunctionBuild = z.object({
  /** Path of the entry module in the source. */
  entrypoint: z.string(),
  /** Path of an import map or a deno.json in the source. */
  importMap: z.string().optional(),
  /** Globs over the source: files that the program may read while it runs. */
  staticPatterns: z.array(z.string()).default([]),
})
export type FunctionBuild = z.input<typeof FunctionBuild>

/** A reason why a program cannot be built; lines and columns count from 1. */
const Issue = z.object({
  message: z.string(),
  file: z.string().optional(),
  line: z.number().int().optional(),
  column: z.number().int().optional(),
})
export type Issue = z.output<typeof Issue>

/** Issues that the developer can fix. */
const Failed = z.object({ issues: z.array(Issue).min(1) })
/** A temporary failure that the developer cannot fix, such as a registry that is down. `isBusy` is set if no build began. */
const Unable = z.object({ unavailable: z.string(), isBusy: z.boolean().optional() })

export const Refusal = z.union([Failed, Unable])
export type Refusal = z.output<typeof Refusal>

/** Result of a function build. The API stores the image without parsing it. */
export const BuildResult = z.union([z.object({ image: Image }), Refusal])
export type BuildResult = z.output<typeof BuildResult>

/**
 * In the response to a worker build, this header holds a BuiltWorker, and the body the parts that it describes, in
 * order.
 */
export const BUILT_HEADER = 'x-pilothouse-built'

export const BuiltWorker = z.object({
  crons: z.array(z.string()),
  /** Size of the first part: an Image as JSON. */
  imageBytes: z.number().int(),
  /** Sizes of the second part: an AssetManifest as JSON, followed by the files; `bytes` includes the manifest. */
  assets: z.object({ manifestBytes: z.number().int(), bytes: z.number().int() }).optional(),
})
export type BuiltWorker = z.output<typeof BuiltWorker>

/** Header that authenticates the API when the builder listens at a port. */
export const KEY_HEADER = 'x-pilothouse-key'

/** Header with the organization of a build; organizations take turns if the builder runs one build at a time. */
export const ORGANIZATION_HEADER = 'x-pilothouse-organization'

export const SPEC_FIELD = 'spec'
export const FILE_FIELD = 'file'

/** A program to start once, as a check. */
export const Probe = z.object({
  image: Image,
  /** Environment variables of the program. */
  env: z.record(z.string(), z.string()).default({}),
})
export type Probe = z.input<typeof Probe>

/** Names of the program's handlers, such as "fetch". */
export const ProbeResult = z.union([z.object({ handlers: z.array(z.string()) }), Failed, Unable])
export type ProbeResult = z.output<typeof ProbeResult>
