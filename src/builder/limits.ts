const MiB = 1024 ** 2

/** Of one build. */
export const LIMITS = {
  sourceFiles: 2_000,
  sourceBytes: 32 * MiB,
  pathLength: 1_024,
  staticPatterns: 100,
  patternLength: 256,
  patternAlternatives: 1_000,
  /** Comparisons of characters, over all files and patterns. */
  patternSteps: 10_000_000,
  /** By one tsconfig.json, beside what these extend. */
  extendedFiles: 20,
  /** All that is fetched for it, packages as well as modules. */
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
  /** By one worker. */
  crons: 10,
  assetFileBytes: 25 * MiB,
  /** Paths, sizes and tags of all static assets: each isolate that serves some keeps them. */
  assetManifestBytes: 256 * 1024,
  assetRules: 100,
  assetRuleLength: 100,
  issues: 20,
  seconds: 60,
}

/** What an isolate keeps of what it fetched, so that the next build need not. */
export const KEPT = { packageBytes: 24 * MiB, remoteBytes: 8 * MiB, metadataBytes: 8 * MiB, metadataMs: 60_000 }
