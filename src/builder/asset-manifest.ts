export const HTML_HANDLINGS = ['auto-trailing-slash', 'force-trailing-slash', 'drop-trailing-slash', 'none'] as const

export const NOT_FOUND_HANDLINGS = ['none', '404-page', 'single-page-application'] as const

/** Which requests go to static assets, and where each asset is in the object that holds the bytes of all. */
export interface AssetManifest {
  htmlHandling: (typeof HTML_HANDLINGS)[number]
  notFoundHandling: (typeof NOT_FOUND_HANDLINGS)[number]
  /** Always, never, or for the paths of these patterns, of which those that begin with `!` count first. */
  runWorkerFirst: boolean | string[]
  /** Whether there is a program for requests without an asset. */
  hasProgram: boolean
  /** By path from the root of the worker, such as `/index.html`. */
  files: Record<string, AssetFile>
}

/** The offset counts from the end of the manifest; the ETag stands without its quotes. */
export type AssetFile = [offset: number, sizeBytes: number, etag: string]
