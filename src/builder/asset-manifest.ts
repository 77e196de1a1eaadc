export const HTML_HANDLINGS = ['auto-trailing-slash', 'force-trailing-slash', 'drop-trailing-slash', 'none'] as const

export const NOT_FOUND_HANDLINGS = ['none', '404-page', 'single-page-application'] as const

/**
 * Describes which requests static assets answer, and the position of each asset in the object that holds all of them.
 */
export interface AssetManifest {
  htmlHandling: (typeof HTML_HANDLINGS)[number]
  notFoundHandling: (typeof NOT_FOUND_HANDLINGS)[number]
  /**
   * Whether the program runs first: for all paths, none, or those that match a pattern. Patterns that begin with `!`
   * exclude paths.
   */
  runWorkerFirst: boolean | string[]
  /** Whether a program answers requests without an asset. */
  hasProgram: boolean
  /** Assets by path from the root of the worker, such as `/index.html`. */
  files: Record<string, AssetFile>
}

/** The offset counts from the end of the manifest; the ETag has no quotes. */
export type AssetFile = [offset: number, sizeBytes: number, etag: string]
