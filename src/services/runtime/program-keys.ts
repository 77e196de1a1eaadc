/**
 * Programs in the bucket: `projects/{ref}/functions/{deployment}/source` holds the files as they were sent, as a multipart form, `…/image`
 * what was built of them. Written once; removed once no function has been at the deployment for a while, and with the project.
 */
const folder = (ref: string, deploymentId: string) => `projects/${ref}/functions/${deploymentId}`

export const sourceKey = (ref: string, deploymentId: string): string => `${folder(ref, deploymentId)}/source`
export const imageKey = (ref: string, deploymentId: string): string => `${folder(ref, deploymentId)}/image`

/**
 * Workers, below `projects/{ref}/workers/`: `uploads/{id}` holds a build context as it was PUT, removed after its slot has expired;
 * `images/{sha256}` what was built, and `assets/{sha256}` the static assets of that image, removed once no worker has served it for a while.
 */
export const workersPrefix = (ref: string): string => `projects/${ref}/workers/`
export const uploadKey = (ref: string, uploadId: string): string => `${workersPrefix(ref)}uploads/${uploadId}`
export const workerImageKey = (ref: string, sha256: string): string => `${workersPrefix(ref)}images/${sha256}`
export const workerAssetsKey = (ref: string, sha256: string): string => `${workersPrefix(ref)}assets/${sha256}`
