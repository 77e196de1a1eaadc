/**
 * Programs in the bucket: `projects/{ref}/functions/{deployment}/source` holds the files as they were sent, as a multipart form, `…/image`
 * what was built of them. Written once; removed once no function has been at the deployment for a while, and with the project.
 */
const folder = (ref: string, deploymentId: string) => `projects/${ref}/functions/${deploymentId}`

export const sourceKey = (ref: string, deploymentId: string): string => `${folder(ref, deploymentId)}/source`
export const imageKey = (ref: string, deploymentId: string): string => `${folder(ref, deploymentId)}/image`
