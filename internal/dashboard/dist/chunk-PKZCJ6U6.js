import{j as o}from"./chunk-7J22EYX5.js";var t="comet-single-keys",e=o(localStorage.getItem(t)!=="off");function n(){e.value=!e.value,localStorage.setItem(t,e.value?"on":"off")}export{e as a,n as b};
