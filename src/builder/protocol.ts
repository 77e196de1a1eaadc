import * as z from 'zod'
import { Image } from './program-image.ts'

/** What is asked of the builder beside the files themselves, which follow as parts of the form named by their paths. */
export const FunctionBuild = z.object({
  /** Path of the entry module in the source. */
  entrypoint: z.string(),
  /** Path of an import map or a deno.json in the source. */
  importMap: z.string().optional(),
  /** Globs over the source: files that the program may read while it runs. */
  staticPatterns: z.array(z.string()).default([]),
})
export type FunctionBuild = z.input<typeof FunctionBuild>

/** Why a program cannot be built; lines and columns count from 1. */
const Issue = z.object({
  message: z.string(),
  file: z.string().optional(),
  line: z.number().int().optional(),
  column: z.number().int().optional(),
})
export type Issue = z.output<typeof Issue>

/** What stands in the way and can be mended by the developer. */
const Failed = z.object({ issues: z.array(Issue).min(1) })
/** Nobody's fault who deploys: a registry is down. */
const Unable = z.object({ unavailable: z.string() })

export const Refusal = z.union([Failed, Unable])
export type Refusal = z.output<typeof Refusal>

/** Of the build of a function. Who keeps the image does so without reading it. */
export const BuildResult = z.union([z.object({ image: Image }), Refusal])
export type BuildResult = z.output<typeof BuildResult>

/** With the answer to the build of a worker, this header holds a BuiltWorker, and its body the parts that it describes, one after another. */
export const BUILT_HEADER = 'x-pilothouse-built'

export const BuiltWorker = z.object({
  crons: z.array(z.string()),
  /** An Image as JSON. */
  imageBytes: z.number().int(),
  /** An AssetManifest as JSON, which is a part of `bytes`, and the files that it describes. */
  assets: z.object({ manifestBytes: z.number().int(), bytes: z.number().int() }).optional(),
})
export type BuiltWorker = z.output<typeof BuiltWorker>

/** Where the builder listens at a port of its own: proves that it is the API that asks. */
export const KEY_HEADER = 'x-pilothouse-key'

export const SPEC_FIELD = 'spec'
export const FILE_FIELD = 'file'

/** A program that is to be started once, to see whether it does. */
export const Probe = z.object({
  image: Image,
  /** What it finds in its environment. */
  env: z.record(z.string(), z.string()).default({}),
})
export type Probe = z.input<typeof Probe>

/** Which handlers the program has, such as "fetch". */
export const ProbeResult = z.union([z.object({ handlers: z.array(z.string()) }), Failed, Unable])
export type ProbeResult = z.output<typeof ProbeResult>
