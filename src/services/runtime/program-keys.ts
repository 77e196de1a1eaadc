/**
 * Functions in the bucket: `projects/{ref}/functions/{deployment}/source` holds the uploaded files as a multipart form,
 * `…/image` the image built from them. Both are written once, and removed with the project or some time after no
 * function uses the deployment.
 */
const folder = (ref: string, deploymentId: string) => `projects/${ref}/functions/${deploymentId}`

export const sourceKey = (ref: string, deploymentId: string): string => `${folder(ref, deploymentId)}/source`
export const imageKey = (ref: string, deploymentId: string): string => `${folder(ref, deploymentId)}/image`

/**
 * Workers, below `projects/{ref}/workers/`: `uploads/{id}` holds an uploaded build context, removed after its slot
 * expires; `images/{sha256}` an image, and `assets/{sha256}` its static assets, both removed some time after no worker
 * serves the image.
 */
export const workersPrefix = (ref: string): string => `projects/${ref}/workers/`
export const uploadKey = (ref: string, uploadId: string): string => `${workersPrefix(ref)}uploads/${uploadId}`
export const workerImageKey = (ref: string, sha256: string): string => `${workersPrefix(ref)}images/${sha256}`
export const workerAssetsKey = (ref: string, sha256: string): string => `${workersPrefix(ref)}assets/${sha256}`
