/** Between the Worker and the object of a worker's instances; whatever a caller sends under these names is overwritten. */
export const PLAN_HEADER = 'x-pilothouse-plan'
/** Says that no instance took the request. */
export const NONE_HEADER = 'x-pilothouse-no-instance'
