import * as z from 'zod'
import { Image } from '../runtime/image.ts'

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

export const BuildResult = z.union([z.object({ image: Image }), z.object({ issues: z.array(Issue).min(1) })])
export type BuildResult = z.output<typeof BuildResult>

export const SPEC_FIELD = 'spec'
export const FILE_FIELD = 'file'
