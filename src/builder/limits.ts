const MiB = 1024 ** 2

/** Limits of one build. */
export const LIMITS = {
  sourceFiles: 2_000,
  sourceBytes: 32 * MiB,
  pathLength: 1_024,
  staticPatterns: 100,
  patternLength: 256,
  patternAlternatives: 1_000,
  /** Character comparisons, over all files and patterns. */
  patternSteps: 10_000_000,
  /** `extends` entries of one tsconfig.json; each extended file has its own. */
  extendedFiles: 20,
  /** Bytes of all fetched packages and modules. */
  fetchedBytes: 128 * MiB,
  packages: 500,
  remoteModules: 1_000,
  remoteModuleBytes: 10 * MiB,
  metadataBytes: 64 * MiB,
  tarballBytes: 32 * MiB,
  unpackedBytes: 128 * MiB,
  packageFiles: 20_000,
  redirects: 10,
  outputBytes: 20 * MiB,
  /** Cron expressions of one worker. */
  crons: 10,
  assetFileBytes: 25 * MiB,
  /** Paths, sizes and tags of all static assets: each isolate that serves them holds the list in memory. */
  assetManifestBytes: 256 * 1024,
  assetRules: 100,
  assetRuleLength: 100,
  issues: 20,
  seconds: 60,
}

/** Limits of the caches for fetched packages and modules, one of each per isolate. */
export const CACHE_LIMITS = { packageBytes: 24 * MiB, remoteBytes: 8 * MiB, metadataBytes: 8 * MiB, metadataMs: 60_000 }
