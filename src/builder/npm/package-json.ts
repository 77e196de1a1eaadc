import * as z from 'zod'

const Dependencies = z.record(z.string(), z.string()).catch({})

/**
 * The fields that affect how imports resolve. Invalid values fall back to defaults, as published packages contain
 * errors.
 */
export const PackageJson = z.looseObject({
  name: z.string().catch(''),
  version: z.string().optional().catch(undefined),
  dependencies: Dependencies,
  optionalDependencies: Dependencies,
  peerDependencies: Dependencies,
  devDependencies: Dependencies,
  peerDependenciesMeta: z.record(z.string(), z.looseObject({ optional: z.boolean().optional() })).catch({}),
  browser: z
    .union([z.string(), z.record(z.string(), z.union([z.string(), z.literal(false)]))])
    .optional()
    .catch(undefined),
  sideEffects: z.unknown().optional(),
  exports: z.unknown().optional(),
  imports: z.unknown().optional(),
  type: z.string().optional().catch(undefined),
  module: z.string().optional().catch(undefined),
  main: z.string().optional().catch(undefined),
  os: z.unknown().optional(),
  cpu: z.unknown().optional(),
  gypfile: z.unknown().optional(),
  scripts: z.record(z.string(), z.unknown()).catch({}),
})
export type PackageJson = z.output<typeof PackageJson>
